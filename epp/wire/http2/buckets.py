"""The token buckets of one connection, one for each kind of flood."""

from __future__ import annotations

from collections.abc import Mapping

from epp.wire.http2.errors import ConnectionFault, ErrorCode
from epp.wire.http2.floods import Flood, Rate


class Buckets:
    """Buckets that hold 0 to ``burst`` tokens each. Owned by a Connection, which keeps ``now`` up to date."""

    __slots__ = ("_levels", "_rates", "now")

    def __init__(self, rates: Mapping[Flood, Rate]) -> None:
        self.now = 0.0
        self._rates = rates
        self._levels: dict[Flood, tuple[float, float]] = {}  # tokens, when; an absent bucket is full

    def charge(self, flood: Flood, count: int = 1) -> None:
        """Take ``count`` tokens. Raises: ConnectionFault when there are fewer."""
        rate = self._rates[flood]
        tokens, since = self._levels.get(flood, (rate.burst, self.now))
        tokens = min(rate.burst, tokens + (self.now - since) * rate.per_s)
        if tokens < count:
            reason = f"too many {flood.value}: {rate.burst:g} at once and {rate.per_s:g} per second are allowed"
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, reason, flood)
        self._levels[flood] = (tokens - count, self.now)

    def give(self, flood: Flood, tokens: int = 1) -> None:
        """Put tokens back, because the client has made use of the work."""
        if level := self._levels.get(flood):
            self._levels[flood] = (min(self._rates[flood].burst, level[0] + tokens), level[1])
