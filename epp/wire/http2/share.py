"""One connection's part of the bytes that all connections of the process buffer, and where that ends."""

from __future__ import annotations

from epp.wire.http2.counters import Counters
from epp.wire.http2.limits import KIB, Limits

SMALLEST_BYTES = 256 * KIB
"""What a connection may always buffer: a guess, some small answers that wait for the client to read."""


class Share:
    """Answers that the client has not let out yet, and messages that are still arriving. Owned by its Connection.

    Invariant: ``counters.buffered_bytes`` is the sum of ``bytes`` over all connections. While that sum is above
    ``max_buffered_bytes``, only connections above an equal share of it are held back: a client that reads what it asks
    for is not touched, whatever its neighbours do.
    """

    __slots__ = ("_counters", "_limits", "bytes")

    def __init__(self, limits: Limits, counters: Counters) -> None:
        self.bytes = 0
        self._limits = limits
        self._counters = counters

    def add(self, length: int) -> None:
        """Buffer ``length`` bytes more; fewer where it is negative."""
        self.bytes += length
        self._counters.buffered_bytes += length

    def hold(self, length: int) -> bool:
        """Do ``add``, and return whether the connection now buffers more than it may; one call in place of two."""
        self.bytes += length
        counters = self._counters
        counters.buffered_bytes += length
        return counters.buffered_bytes > self._limits.max_buffered_bytes and self.forbids()

    def forbids(self, length: int = 0) -> bool:
        """Whether this connection must not buffer ``length`` bytes more."""
        limit = self._limits.max_buffered_bytes
        if self._counters.buffered_bytes + length <= limit:
            return False
        return self.bytes + length > max(SMALLEST_BYTES, limit // max(1, self._counters.connections))
