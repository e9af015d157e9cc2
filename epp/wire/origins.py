"""The addresses that clients connect from, and what the connections of one address share."""

from __future__ import annotations

from epp.wire.http2.limits import Limits
from epp.wire.http2.streams import Places
from epp.wire.turns import Clocks, HeaderBudget, Turn


class Origin:
    """One address: its connections have one turn, one budget for headers and one account of streams together.

    A machine therefore gains nothing by opening many connections. Owned by the event loop.
    """

    __slots__ = ("address", "connections", "headers", "places", "turn")

    def __init__(self, address: str, limits: Limits, clocks: Clocks) -> None:
        self.address = address
        self.connections = 0
        self.turn = Turn(clocks)
        self.headers = HeaderBudget(limits.header_share)
        self.places = Places()


class Origins:
    """The addresses with at least one connection. Owned by one server."""

    def __init__(self, limits: Limits, clocks: Clocks) -> None:
        self._limits = limits
        self._clocks = clocks
        self._known: dict[str, Origin] = {}

    def join(self, address: str) -> Origin:
        """Count one more connection of ``address``, and return what it shares with the others."""
        origin = self._known.get(address)
        if origin is None:
            origin = self._known[address] = Origin(address, self._limits, self._clocks)
        origin.connections += 1
        return origin

    def leave(self, origin: Origin) -> None:
        """Count one connection less, and forget the address with its last one."""
        origin.connections -= 1
        if not origin.connections:
            del self._known[origin.address]

    def most_connections(self) -> int:
        """Return the number of connections of the address that has the most."""
        return max((origin.connections for origin in self._known.values()), default=0)
