"""How often an endpoint's metrics are read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """Often while an endpoint has requests of ours, rarely while it has none, and never too often in all.

    Units: seconds.
    """

    busy_s: float = 0.05
    idle_s: float = 1.0
    staleness_s: float = 2.0
    """How much later than expected a reading may be before the endpoint's numbers are not believed."""
    timeout_s: float = 1.0
    most_per_s: float = 400.0
    """Of all endpoints together. The ledger adds what we sent since, so that a slower pace costs little. Source:
    benchmarks/idle_scrape.py, a page of 100 KB costs under 0.2 ms: at most 0.08 of a core."""

    def after_success(self, before_s: float, *, in_flight: bool, busy_endpoints: int) -> float:
        """The next interval: an endpoint whose requests have ended slows down by halves."""
        return self.at_pick(busy_endpoints) if in_flight else self._slower(before_s)

    def after_failure(self, before_s: float) -> float:
        """The next interval; requests in flight do not make a dead endpoint answer."""
        return self._slower(before_s)

    def at_pick(self, busy_endpoints: int) -> float:
        """The interval of an endpoint with requests of ours."""
        return self._within(busy_endpoints / self.most_per_s)

    def stale_after(self, interval_s: float) -> float:
        """How old a reading may be while ``interval_s`` is in force."""
        return interval_s + self.staleness_s

    def _slower(self, before_s: float) -> float:
        return self._within(before_s * 2)

    def _within(self, interval_s: float) -> float:
        return max(self.busy_s, min(self.idle_s, interval_s))
