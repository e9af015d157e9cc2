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
    """Of the endpoints with requests together, and of all together: large pools are read less often. The ledger adds
    what we sent since, so that a slower pace costs little. Source: benchmarks/picker/idle_scrape.py, 2 shared cores,
    2026-11-21: 0.06 core at this rate with pages of 100 KB."""

    together: int = 4
    """About how many are read at once: a scrape that follows another finds caches warm and the event loop awake, which
    halves its cost; more at once would make decisions wait. Source: as above, 4 endpoints."""

    def after_success(self, before_s: float, *, in_flight: bool, busy: int, endpoints: int) -> float:
        """The next interval; an endpoint whose requests have ended slows down by halves.

        ``busy`` of the ``endpoints`` have requests in flight.
        """
        return self.at_pick(busy) if in_flight else self._slower(before_s, endpoints)

    def after_failure(self, before_s: float, *, endpoints: int) -> float:
        """The next interval; requests in flight do not make a dead endpoint answer."""
        return self._slower(before_s, endpoints)

    def at_pick(self, busy: int) -> float:
        """The interval of an endpoint with requests of ours, one of ``busy``."""
        return max(self.busy_s, busy / self.most_per_s)

    def slowest(self, endpoints: int) -> float:
        """The interval of an endpoint with none."""
        return max(self.busy_s, self.idle_s, endpoints / self.most_per_s)

    def due(self, at: float, interval_s: float, sharing: int) -> float:
        """The moment near ``at`` that a few of the ``sharing`` endpoints with this interval meet at."""
        tick_s = interval_s * min(1.0, self.together / max(1, sharing))
        return round(at / tick_s) * tick_s

    def stale_after(self, interval_s: float) -> float:
        """How old a reading may be while ``interval_s`` is in force."""
        return interval_s + self.staleness_s

    def _slower(self, before_s: float, endpoints: int) -> float:
        return min(self.slowest(endpoints), max(self.busy_s, before_s * 2))
