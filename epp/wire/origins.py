"""The addresses that clients connect from, and what the connections of one address share."""

from __future__ import annotations

from collections import deque

from epp.wire.http2.limits import Limits
from epp.wire.http2.streams import Places
from epp.wire.turns import Clocks, HeaderBudget, Turn


class Origin:
    """One address: its connections have one turn, one budget for headers and one account of streams together.

    A machine therefore gains nothing by opening many connections. Owned by the event loop.
    """

    __slots__ = ("address", "connections", "headers", "left", "places", "turn")

    def __init__(self, address: str, limits: Limits, clocks: Clocks) -> None:
        self.address = address
        self.connections = 0
        self.turn = Turn(clocks)
        self.headers = HeaderBudget(limits.header_share)
        self.places = Places()
        self.left = False
        """Whether it is in the list of addresses that were left."""


class Origins:
    """The addresses with at least one connection, and those whose budgets are not full yet. Owned by one server.

    A client that connects anew thus has the budget that it left, and not a full one.
    """

    def __init__(self, limits: Limits, clocks: Clocks) -> None:
        self._limits = limits
        self._clocks = clocks
        self._known: dict[str, Origin] = {}
        self._left: deque[Origin] = deque()  # each without connections when it was added, and in here once

    def __len__(self) -> int:
        return len(self._known)

    def join(self, address: str, now: float) -> Origin:
        """Count one more connection of ``address``, and return what it shares with the others."""
        self._forget(now)
        origin = self._known.get(address)
        if origin is None:
            origin = self._known[address] = Origin(address, self._limits, self._clocks)
        origin.connections += 1
        return origin

    def leave(self, origin: Origin, now: float) -> None:
        """Count one connection less; the address is forgotten after its last one, once its budget is full again."""
        origin.connections -= 1
        if not origin.connections and not origin.left:
            origin.left = True
            self._left.append(origin)
        self._forget(now)

    def most_connections(self) -> int:
        """Return the number of connections of the address that has the most."""
        return max((origin.connections for origin in self._known.values()), default=0)

    def _forget(self, now: float) -> None:
        """Look at two of the addresses that were left; a call adds at most one."""
        for _ in range(min(2, len(self._left))):
            origin = self._left.popleft()
            if origin.connections:
                origin.left = False
            elif origin.headers.full(now):
                del self._known[origin.address]
            else:
                self._left.append(origin)
