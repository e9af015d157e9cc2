"""The scraper's state of one endpoint."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence

from epp.pool.pool import Endpoint
from epp.scrape.page import Page
from epp.scrape.reading.reader import EngineReader
from epp.scrape.reading.tiers import TierReader
from scorers.base import Silence, Slot

log = logging.getLogger(__name__)


class Target:
    """One endpoint that is read. At any time it has either a timer or a task."""

    def __init__(self, slot: Slot, address: str, now: float, interval_s: float) -> None:
        self.slot = slot
        self.address = address
        self.interval_s = interval_s
        self.endpoint: Endpoint | None = None
        """The endpoint that ``page`` is of; it is replaced if its ``metrics_url`` changes in the pool."""
        self.page: Page | None = None
        self.reader: EngineReader  # for the same endpoint
        self.tiers = TierReader()
        self.missing: list[str] = []
        """The metrics that its page did not have."""
        self.began_at = now
        """The start of the last successful reading; before the first, the time when the endpoint was added."""
        self.due_at = now
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self.stale_timer: asyncio.TimerHandle | None = None
        self.least_s = 0.0
        """The shortest interval that its page's size allows."""
        self.failure: str | None = None
        """The error of the last reading; None after a success."""
        self.logged: set[str] = set()
        """The reasons of failures that were logged since the last success."""
        self.silence: Silence | None = Silence.UNREAD
        """The reason why its numbers are not current; None while they are."""
        self.reported = False
        """Whether its outage was logged."""
        self.was_read = False
        self.answers = False
        """Whether it responded to the last request, with a page or otherwise."""
        self.elsewhere = False
        """Whether its page is at another address than its API, so that its connections do not count for the API."""
        self.errors: Counter[str] = Counter()
        self.doubted: set[str] = set()
        """The metrics that had impossible values on the last page."""
        self._doubts: Counter[str] = Counter()
        """How often each metric began to have impossible values."""

    @property
    def stale(self) -> bool:
        """Whether its numbers are known to be out of date; False until its first reading can have ended."""
        return self.reported or self.silence in (Silence.LATE, Silence.GONE)

    def count_doubted(self, readings: Sequence[str]) -> None:
        """Count ``readings`` with impossible values. Each metric is logged at the 1st, 2nd, 4th, 8th ... time that it
        begins to have them, since pages are read often."""
        names = {reading.partition(" ")[0] for reading in readings}
        new = names - self.doubted
        self._doubts.update(new)
        if any(self._doubts[name] & (self._doubts[name] - 1) == 0 for name in new):
            log.warning("endpoint %s: its page says %s: taken as not said", self.address, " and ".join(readings))
        self.errors["doubted"] += bool(names)
        self.doubted = names
