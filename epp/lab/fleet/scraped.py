"""The picker's view of an engine: its numbers at the last scrape, not the current ones."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, inf
from typing import NamedTuple

from epp.lab.engine.engine import Engine
from epp.lab.fleet.page import EnginePage
from epp.pool.seat import EngineMetrics

SOON = 1 - 1e-6
"""The share of an interval after a scrape in which no other begins, however sums are rounded."""


@dataclass(frozen=True, slots=True)
class Scraping:
    """How often endpoints are scraped, and how long a scrape takes. Units: seconds."""

    interval_s: float = 0.05
    lag_s: float = 0.005
    """From the start of a scrape until the picker has read it. A guess: a page of 100 KB within one cluster."""
    tells_tiers: bool = True
    """Whether the engines report the state of their tiers, as kvengine does."""


class Scrape(NamedTuple):
    """One scrape of one engine."""

    began_at: float
    page: EnginePage

    @property
    def metrics(self) -> EngineMetrics:
        """The metrics that the scraped page has."""
        return self.page.metrics


class ScrapedEngine:
    """The scrapes of one engine, each made only when the engine is about to change or its numbers are read.

    Between two changes all scrapes are equal, so the last of them represents all, and is made once. ``before`` must be
    called before every change. Owner: a picker.
    """

    def __init__(self, engine: Engine, scraping: Scraping, phase_s: float) -> None:
        """Scrapes begin at 0, at ``phase_s``, and at every interval from there."""
        self._engine = engine
        self._scraping = scraping
        self._phase_s = phase_s
        self._older = self._last = Scrape(0.0, EnginePage(engine, tells_tiers=scraping.tells_tiers))
        self._changed = False  # since the last scrape
        self._not_before = phase_s * SOON  # earliest begin of the next scrape

    def before(self, now: float) -> None:
        """Make the scrape due before the engine changes at ``now``."""
        if now >= self._not_before:
            self._scrape(self._begun_by(now))
        self._changed = True

    def visible(self, now: float) -> Scrape:
        """Return the scrape that the picker has read by ``now``."""
        begun = self._begun_by(now - self._scraping.lag_s)
        self._scrape(begun)
        return self._last if self._last.began_at <= begun else self._older

    def _begun_by(self, now: float) -> float:
        """Return when the last scrape before ``now`` began; 0 before the first one."""
        interval_s = self._scraping.interval_s
        return max(0.0, self._phase_s + floor((now - self._phase_s) / interval_s) * interval_s)

    def _scrape(self, at: float) -> None:
        last = self._last
        if at > last.began_at:
            scraping = self._scraping
            page = EnginePage(self._engine, tells_tiers=scraping.tells_tiers) if self._changed else last.page
            self._older, self._last, self._changed = last, Scrape(at, page), False
            self._not_before = at + scraping.interval_s * SOON


class Rounds:
    """Finds the engines scraped since the picker's last look: few of many, where decisions are close together."""

    def __init__(self, scraping: Scraping, phases_s: Sequence[float]) -> None:
        self._scraping = scraping
        self._order = sorted(range(len(phases_s)), key=phases_s.__getitem__)
        self._phases_s = [phases_s[n] for n in self._order]
        self._until = -inf

    def since_last(self, now: float) -> Sequence[int]:
        """Return the positions of engines with a new scrape, and perhaps of some without."""
        interval_s = self._scraping.interval_s
        since, self._until = self._until, now - self._scraping.lag_s
        if self._until - since >= interval_s:
            return self._order
        begin = bisect_left(self._phases_s, since % interval_s)
        end = bisect_right(self._phases_s, self._until % interval_s)
        if since % interval_s <= self._until % interval_s:
            return self._order[begin:end]
        return self._order[begin:] + self._order[:end]
