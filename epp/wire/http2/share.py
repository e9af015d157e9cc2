"""The bytes that one connection buffers, and their bound, which depends on all connections of the process."""

from __future__ import annotations

from epp.wire.http2.counters import Counters
from epp.wire.http2.limits import KIB, Limits

SMALLEST_BYTES = 256 * KIB
"""Bytes that a connection may always buffer. A guess: some small answers that wait for the client to read."""


class Share:
    """Bytes of unsent answers and incomplete messages of one connection. Owned by its Connection.

    Invariant: ``counters.buffered_bytes`` is the sum of ``bytes`` over all connections. While that sum is above
    ``max_buffered_bytes``, only connections above an equal share of it are limited: a client that reads its answers is
    not affected, whatever other clients do.
    """

    __slots__ = ("_counters", "_limits", "bytes")

    def __init__(self, limits: Limits, counters: Counters) -> None:
        self.bytes = 0
        self._limits = limits
        self._counters = counters

    def add(self, length: int) -> None:
        """Count ``length`` more buffered bytes, or fewer if it is negative."""
        self.bytes += length
        self._counters.buffered_bytes += length

    def hold(self, length: int) -> bool:
        """Do ``add``, and return whether the connection now buffers more than it may; one call in place of two."""
        self.bytes += length
        counters = self._counters
        counters.buffered_bytes += length
        return counters.buffered_bytes > self._limits.max_buffered_bytes and self.forbids()

    def forbids(self, length: int = 0) -> bool:
        """Return whether this connection must not buffer ``length`` more bytes."""
        limit = self._limits.max_buffered_bytes
        if self._counters.buffered_bytes + length <= limit:
            return False
        return self.bytes + length > max(SMALLEST_BYTES, limit // max(1, self._counters.connections))
