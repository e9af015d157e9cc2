"""Lets servers that do not answer rest for a while, so that not every request waits for them in vain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

FAILURES = 3
"""A server rests after this many failures in a row. A guess: one or two may be the fault of the network or of a
request.
"""
LONGEST_S = 30.0
MOST = 10_000
"""Maximum number of servers that are remembered."""


class Resting:
    """The failures of servers, and until when each of them rests.

    Units: seconds of ``clock``. Owner: the event loop.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures: dict[str, int] = {}
        self._until: dict[str, float] = {}
        self._tried: set[str] = set()
        """Resting servers that one request is trying, with no result yet."""

    def awake(self, servers: Sequence[str]) -> list[str]:
        """Return those of ``servers`` that may get a request."""
        if not self._until:
            return list(servers)
        now = self._clock()
        return [server for server in servers if self._until.get(server, now) <= now]

    def asked(self, server: str) -> None:
        """Record that ``server`` gets a request. If it was resting, other requests wait for the result of this one."""
        if server in self._until:
            self._rest(server)
            self._tried.add(server)

    def answered(self, server: str) -> None:
        """Record that ``server`` works, and end its rest."""
        if self._failures.pop(server, 0):
            self._until.pop(server, None)
            self._tried.discard(server)

    def failed(self, server: str) -> None:
        """Record that ``server`` has not answered, or not as it should.

        Failures of requests that were under way when its rest began are not counted.
        """
        if server in self._tried:
            self._tried.discard(server)
        elif self._until.get(server, -inf) > self._clock():
            return
        if server not in self._failures and len(self._failures) >= MOST:
            self._failures.clear()
            self._until.clear()
            self._tried.clear()
        self._failures[server] = self._failures.get(server, 0) + 1
        if self._failures[server] >= FAILURES:
            self._rest(server)

    def _rest(self, server: str) -> None:
        rest_s = min(LONGEST_S, 2.0 ** min(10, self._failures[server] - FAILURES))
        self._until[server] = self._clock() + rest_s
