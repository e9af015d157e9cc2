"""Servers that do not answer are left in peace for a while, so that not every request waits for them in vain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

FAILURES = 3
"""In a row, after which a server rests. A guess: one or two may be the network's, or the request's."""
LONGEST_S = 30.0
MOST = 10_000
"""Servers that are remembered."""


class Resting:
    """Units: seconds of ``clock``. Owner: the event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures: dict[str, int] = {}
        self._until: dict[str, float] = {}
        self._tried: set[str] = set()
        """Those that rest, but for one request, of which nothing is known yet."""

    def awake(self, servers: Sequence[str]) -> list[str]:
        """Those of ``servers`` that may be asked."""
        if not self._until:
            return list(servers)
        now = self._clock()
        return [server for server in servers if self._until.get(server, now) <= now]

    def asked(self, server: str) -> None:
        """A server that was resting is tried by one request: the others wait for what comes of that."""
        if server in self._until:
            self._rest(server)
            self._tried.add(server)

    def answered(self, server: str) -> None:
        """It works."""
        if self._failures.pop(server, 0):
            self._until.pop(server, None)
            self._tried.discard(server)

    def failed(self, server: str) -> None:
        """It has not answered, or not as it should. Requests that were under way when it began to rest say no more."""
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
