"""The interval at which an endpoint's metrics are read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """Reads an endpoint often while it has requests in flight, rarely while it has none, and limits the total rate.

    Units: seconds.
    """

    busy_s: float = 0.05
    idle_s: float = 1.0
    staleness_s: float = 2.0
    """How much later than expected a reading may be before the endpoint's numbers are stale."""
    timeout_s: float = 1.0
    most_per_s: float = 400.0
    """Maximum rate of readings, over the busy endpoints and over all: large pools are read less often. The ledger adds
    the picks since the last reading, so a slower pace costs little accuracy. Source:
    benchmarks/picker/idle_scrape.py, 2 shared cores, 2026-11-21: 0.06 core at this rate with pages of 100 KB."""

    together: int = 4
    """About how many endpoints are read at once: a scrape right after another finds caches warm and the event loop
    awake, which halves its cost; more at once would delay decisions. Source: as above, 4 endpoints."""

    def after_success(self, before_s: float, *, in_flight: bool, busy: int, endpoints: int) -> float:
        """Return the next interval after a successful reading. It doubles while the endpoint has no requests in flight.

        ``busy`` of the ``endpoints`` have requests in flight.
        """
        return self.at_pick(busy) if in_flight else self._slower(before_s, endpoints)

    def after_failure(self, before_s: float, *, endpoints: int) -> float:
        """Return the next interval after a failure, which requests in flight do not shorten."""
        return self._slower(before_s, endpoints)

    def at_pick(self, busy: int) -> float:
        """Return the interval of an endpoint with requests in flight, one of ``busy``."""
        return max(self.busy_s, busy / self.most_per_s)

    def slowest(self, endpoints: int) -> float:
        """Return the interval of an endpoint without requests in flight."""
        return max(self.busy_s, self.idle_s, endpoints / self.most_per_s)

    def due(self, at: float, interval_s: float, sharing: int) -> float:
        """Return a time near ``at``, rounded so that a few of the ``sharing`` endpoints are read together."""
        tick_s = interval_s * min(1.0, self.together / max(1, sharing))
        return round(at / tick_s) * tick_s

    def stale_after(self, interval_s: float) -> float:
        """Return the age at which a reading is stale while ``interval_s`` is in force."""
        return interval_s + self.staleness_s

    def _slower(self, before_s: float, endpoints: int) -> float:
        return min(self.slowest(endpoints), max(self.busy_s, before_s * 2))
