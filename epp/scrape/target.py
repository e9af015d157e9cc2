"""What the scraper knows of one endpoint."""

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
    """One endpoint that is read. At any time it has a timer or a task, never both."""

    def __init__(self, slot: Slot, address: str, now: float, interval_s: float) -> None:
        self.slot = slot
        self.address = address
        self.interval_s = interval_s
        self.endpoint: Endpoint | None = None
        """Whose ``page`` it is; another one when the pool was given another ``metrics_url``."""
        self.page: Page | None = None
        self.reader: EngineReader  # of the same endpoint
        self.tiers = TierReader()
        self.missing: list[str] = []
        """Metrics that its page did not have."""
        self.began_at = now
        """When the last reading that succeeded began; at first, when the endpoint was added."""
        self.due_at = now
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self.stale_timer: asyncio.TimerHandle | None = None
        self.least_s = 0.0
        """The shortest interval that its page's size allows."""
        self.failure: str | None = None
        """What was last wrong; None after a success."""
        self.logged: set[str] = set()
        """Reasons of failures that the log has, since the last success."""
        self.silence: Silence | None = Silence.UNREAD
        """Why its numbers are not believed; None while they are."""
        self.reported = False
        """Whether the log has that it is silent."""
        self.was_read = False
        self.answers = False
        """Whether the last attempt was answered, with a page or with another thing."""
        self.elsewhere = False
        """Whether its page is at another address than its API, and so tells nothing of the API's connections."""
        self.errors: Counter[str] = Counter()
        self.doubted: set[str] = set()
        """Metrics that the last page had with values that are not believed."""
        self._doubts: Counter[str] = Counter()
        """How often each of them began to be so."""

    @property
    def stale(self) -> bool:
        """Whether it is known that its numbers are not to be believed; not so before its first reading can have
        ended."""
        return self.reported or self.silence in (Silence.LATE, Silence.GONE)

    def count_doubted(self, readings: Sequence[str]) -> None:
        """Count ``readings`` that are not believed. The log has each once, until it is believed again, and then the
        2nd, 4th, 8th ... time: pages are read often."""
        names = {reading.partition(" ")[0] for reading in readings}
        new = names - self.doubted
        self._doubts.update(new)
        if any(self._doubts[name] & (self._doubts[name] - 1) == 0 for name in new):
            log.warning("endpoint %s: its page says %s: taken as not said", self.address, " and ".join(readings))
        self.errors["doubted"] += bool(names)
        self.doubted = names
