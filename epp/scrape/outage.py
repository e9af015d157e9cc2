"""Detects outages of endpoints and of the whole pool, marks them in the pool, and logs each in a few lines.

    read ─► late (last reading too old, or no readable page) ─► read
      └───► gone (connections are refused) ─► late, once the address responds ─► read

A refused connection counts as an outage at once, until the endpoint responds. A time-out counts only once the last
reading is too old, and never as gone: a picker that is starved of CPU sees time-outs everywhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from epp.pool.candidates import serving
from epp.pool.pool import Pool
from epp.scrape.reading.error import ScrapeError
from epp.scrape.target import Target
from scorers.base import Silence

log = logging.getLogger(__name__)


class Outages:
    """Marks and logs outages. Each outage is logged once, and so is its end. Owner: the scraper of ``targets``."""

    def __init__(self, pool: Pool, targets: Mapping[str, Target], clock: Callable[[], float]) -> None:
        self._pool = pool
        self._targets = targets
        self._clock = clock
        self._began_at: float | None = None

    def answered(self, target: Target) -> None:
        """End the outage of ``target``, whose page was read."""
        if target.reported:
            log.info("endpoint %s: its metrics are read %s", target.address, "again" if target.was_read else "now")
        target.silence, target.reported, target.was_read = None, False, True
        self._ended(target)

    def failed(self, target: Target, error: ScrapeError) -> None:
        """Handle a failed reading, which begins or changes an outage if the error is clear enough."""
        if error.gone and not target.elsewhere:
            was_fresh = target.silence is None
            self._mark(target, Silence.GONE)
            if was_fresh:
                target.logged.add(error.reason)
                self._report(target, "it is out of reach", str(error))
            self._look()
        elif error.answered:
            if target.silence is not None:
                self._mark(target, Silence.LATE)
            self._ended(target)

    def late(self, target: Target, limit_s: float) -> None:
        """Begin an outage of ``target``, whose last reading is older than ``limit_s``."""
        if target.silence is None:
            self._mark(target, Silence.LATE)
        why = target.failure or "the last reading is still under way"
        self._report(target, f"no metrics for {limit_s:.1f} s", why)

    def _mark(self, target: Target, silence: Silence) -> None:
        if target.silence is not silence:
            target.silence = silence
            self._pool.mark_stale(target.slot, silence)

    def _report(self, target: Target, what: str, why: str) -> None:
        target.reported = True
        spared = all(candidate.slot != target.slot for candidate in serving(self._pool.candidates()))
        log.warning("endpoint %s: %s%s: %s", target.address, what, ", so others are preferred" if spared else "", why)
        self._look()

    def _look(self) -> None:
        """Log when every endpoint has an outage. An endpoint that responds without a readable page prevents it."""
        targets = self._targets.values()
        if self._began_at is not None or self._pool.any_fresh or any(target.answers for target in targets):
            return
        if not all(target.reported for target in targets):
            return
        self._began_at = self._clock()
        if all(target.silence is Silence.GONE for target in targets):
            log.error("no endpoint answers: requests get 503 until one does")
        else:
            log.error("no endpoint answers in time: requests wait or fail until one does")

    def _ended(self, target: Target) -> None:
        if self._began_at is not None:
            took_s, self._began_at = self._clock() - self._began_at, None
            log.warning("endpoint %s answers: for %.0f s no endpoint did", target.address, took_s)
