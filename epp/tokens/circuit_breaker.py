"""Sends no requests to failing servers for a while, so that not every request waits for their time-out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

FAILURES = 3
"""Number of failures in a row that open the circuit of a server. A guess: one or two may be the fault of the network or
of a request.
"""
LONGEST_S = 30.0
MOST = 10_000
"""Maximum number of servers that are remembered."""


class CircuitBreaker:
    """The failures of servers, and the time until which the circuit of each is open.

    Units: seconds of ``clock``. Owner: the event loop.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures: dict[str, int] = {}
        self._until: dict[str, float] = {}
        self._probed: set[str] = set()
        """Servers with an open circuit that one request is trying, with no result yet."""

    def available(self, servers: Sequence[str]) -> list[str]:
        """Return those of ``servers`` that may get a request."""
        if not self._until:
            return list(servers)
        now = self._clock()
        return [server for server in servers if self._until.get(server, now) <= now]

    def request_sent(self, server: str) -> None:
        """Record that ``server`` gets a request. If its circuit is open, other requests wait for the result."""
        if server in self._until:
            self._open(server)
            self._probed.add(server)

    def succeeded(self, server: str) -> None:
        """Record that ``server`` works, and close its circuit."""
        if self._failures.pop(server, 0):
            self._until.pop(server, None)
            self._probed.discard(server)

    def failed(self, server: str) -> None:
        """Record that ``server`` has not answered, or not as it should.

        Failures of requests that were under way when its circuit opened are not counted.
        """
        if server in self._probed:
            self._probed.discard(server)
        elif self._until.get(server, -inf) > self._clock():
            return
        if server not in self._failures and len(self._failures) >= MOST:
            self._failures.clear()
            self._until.clear()
            self._probed.clear()
        self._failures[server] = self._failures.get(server, 0) + 1
        if self._failures[server] >= FAILURES:
            self._open(server)

    def _open(self, server: str) -> None:
        open_s = min(LONGEST_S, 2.0 ** min(10, self._failures[server] - FAILURES))
        self._until[server] = self._clock() + open_s
