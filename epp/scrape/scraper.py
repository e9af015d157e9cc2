"""Keeps the pool's numbers fresh: reads every endpoint's metrics, each at its own pace.

    timer ─► fetch ─► read ─► pool.observe, ledger.reconcile ─► next timer
      ▲ a pick brings it forward

Each endpoint has its own timer and at most one request under way, so that a slow one delays nobody. Rejected: a queue
with workers (64 slow endpoints would block it), and one loop over all (the slowest would set the pace).
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator

from epp.config.plan import ScrapeParameters
from epp.decision import Cause
from epp.ledger import Ledger
from epp.pool import Endpoint, Pool
from epp.scrape.client import Client
from epp.scrape.error import ScrapeError
from epp.scrape.pace import Pace
from epp.scrape.page import Page
from epp.scrape.reader import EngineReader
from epp.scrape.readers import Readers
from epp.scrape.state import ScrapeState
from epp.telemetry.gauges import Reading
from scorers.base import Candidate, Slot

log = logging.getLogger(__name__)

JITTER = 0.1
"""Share of an interval by which it varies, so that endpoints that were added together do not stay in step."""


class _Target:
    """One endpoint that is read. At any time it has a timer or a task, never both."""

    def __init__(self, slot: Slot, address: str, now: float, interval_s: float) -> None:
        self.slot = slot
        self.address = address
        self.interval_s = interval_s
        self.endpoint: Endpoint | None = None
        """Whose ``page`` it is; another one when the pool was given another ``metrics_url``."""
        self.page: Page | None = None
        self.reader: EngineReader  # of the same endpoint
        self.lacks: list[str] = []
        """Metrics that its page did not have."""
        self.began_at = now
        """When the last reading that succeeded began; at first, when the endpoint was added."""
        self.due_at = now
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self.stale_timer: asyncio.TimerHandle | None = None
        self.fails: str | None = None
        """What was last wrong; None after a success."""
        self.stale: bool | None = None
        self.errors: Counter[str] = Counter()


class Scraper:
    """A listener of the pool. Owner: the event loop; ``start`` and ``stop`` are called once."""

    def __init__(
        self,
        pool: Pool,
        ledger: Ledger,
        parameters: ScrapeParameters,
        pace: Pace,
        *,
        ended: Callable[[int, Cause], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """``ended`` closes the picks that an engine no longer has; the ledger does by default. ``clock`` is the one
        that picks are opened by."""
        self._pool = pool
        self._ledger = ledger
        self._pace = pace
        self._parameters = parameters
        self._client: Client  # from start to stop
        self._readers = Readers(parameters.engines)
        self._ended = ended or ledger.close
        self._clock = clock
        self._jitter = jitter
        self._targets: dict[str, _Target] = {}
        self._scrapes = 0
        self._bytes = 0

    async def start(self) -> None:
        """Begin with the endpoints that there are, and follow the pool.

        Raises: ConfigError for certificates that cannot be read.
        """
        self._client = Client(self._parameters, self._pace.timeout_s)
        self._pool.listeners.append(self)
        self._pool.on_busy.append(self._wake)
        for candidate in self._pool.candidates():
            self.endpoint_added(candidate)

    async def stop(self) -> None:
        """End every request under way and close the connections."""
        self._pool.listeners.remove(self)
        self._pool.on_busy.remove(self._wake)
        tasks = [target.task for target in self._targets.values() if target.task is not None]
        for target in self._targets.values():
            self._cancel(target)
        self._targets.clear()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.close()

    def readings(self) -> Iterator[Reading]:
        """For ``Telemetry.gauge_source``."""
        yield Reading("tierwise_scrapes", "Metrics pages read.", (), [((), self._scrapes)], counter=True)
        yield Reading("tierwise_scraped_bytes", "Their size.", (), [((), self._bytes)], counter=True)
        yield Reading(
            "tierwise_scrape_errors",
            "Metrics pages that could not be read, by endpoint and reason.",
            ("endpoint", "reason"),
            [((t.address, reason), n) for t in self._targets.values() for reason, n in t.errors.items()],
            counter=True,
        )
        yield Reading(
            "tierwise_scrape_interval_seconds",
            "The interval in force.",
            ("endpoint",),
            [((target.address,), target.interval_s) for target in self._targets.values()],
        )

    def states(self) -> dict[str, ScrapeState]:
        """How it goes with every endpoint, by address."""
        now = self._clock()
        return {
            t.address: ScrapeState(now - t.began_at, t.interval_s, bool(t.stale), t.fails, dict(t.errors))
            for t in self._targets.values()
        }

    # PoolListener

    def endpoint_added(self, candidate: Candidate) -> None:
        """Read it at once, or soon where many are added together."""
        interval_s = self._pace.slowest(len(self._pool))
        target = _Target(candidate.slot, candidate.address, self._clock(), interval_s)
        self._targets[target.address] = target
        spread_s = min(interval_s, len(self._targets) / self._pace.most_per_s)
        self._schedule(target, target.began_at + self._jitter() * spread_s)
        self._expect(target)

    def endpoint_removed(self, slot: Slot, address: str) -> None:  # noqa: ARG002
        """Forget it; what is under way is cancelled."""
        target = self._targets.pop(address, None)
        if target is not None:
            self._cancel(target)

    def engine_reported(self, candidate: Candidate) -> None:
        """We said so."""

    def _wake(self, address: str) -> None:
        """Bring the next reading forward: the endpoint has a request now. A failing one keeps its pace."""
        target = self._targets.get(address)
        if target is None or target.timer is None or target.fails:
            return
        interval_s = self._pace.at_pick(self._ledger.busy_endpoints())
        if self._clock() + interval_s < target.due_at:
            target.timer.cancel()
            target.interval_s = interval_s
            self._schedule_next(target, interval_s)

    def _schedule_next(self, target: _Target, delay_s: float) -> None:
        """In about ``delay_s``, at a moment that a few endpoints share."""
        delay_s *= 1 + JITTER * (self._jitter() - 0.5)
        sharing = self._ledger.busy_endpoints() if self._ledger.in_flight(target.address) else len(self._targets)
        self._schedule(target, self._pace.due(self._clock() + delay_s, target.interval_s, sharing))

    def _schedule(self, target: _Target, at: float) -> None:
        target.due_at = at
        target.timer = asyncio.get_running_loop().call_later(max(0.0, at - self._clock()), self._begin, target)

    def _begin(self, target: _Target) -> None:
        target.timer = None
        target.task = asyncio.get_running_loop().create_task(self._scrape(target))

    async def _scrape(self, target: _Target) -> None:
        began_at = self._clock()
        try:
            await self._read(target, began_at)
        except ScrapeError as error:
            self._failed(target, error.reason, str(error))
        except Exception as error:  # one endpoint must not take the others down
            log.exception("endpoint %s: reading its metrics failed", target.address)
            self._failed(target, "internal", repr(error))
        target.task = None
        if self._targets.get(target.address) is target:
            self._schedule_next(target, max(0.0, target.interval_s - (self._clock() - began_at)))

    async def _read(self, target: _Target, began_at: float) -> None:
        """Fetch one page and pass on what it says. Raises: ScrapeError."""
        endpoint = self._pool.endpoint(target.address)
        if endpoint is None:
            return
        page = self._page(target, endpoint)
        text = await page.fetch()
        engine = target.reader.read(text)
        self._scrapes += 1
        self._bytes += len(text)
        self._pool.observe(target.slot, engine, began_at)
        if not engine.partial:
            for pick_id, cause in self._ledger.reconcile(target.address, engine.waiting + engine.running, began_at):
                self._ended(pick_id, cause)
        target.began_at, target.fails = began_at, None
        target.interval_s = self._pace.after_success(
            target.interval_s,
            in_flight=self._ledger.in_flight(target.address) > 0,
            busy=self._ledger.busy_endpoints(),
            endpoints=len(self._targets),
        )
        if target.stale is not False:
            if target.stale:
                log.info("endpoint %s: its metrics are read again", target.address)
            target.stale = False
            self._look_for_gaps(target, text)

    def _page(self, target: _Target, endpoint: Endpoint) -> Page:
        """The page of ``endpoint``, kept while it stays the same. Raises: ScrapeError."""
        if target.page is None or target.endpoint is not endpoint:
            if target.page is not None:
                target.page.close()
                target.page = None
            target.page = self._client.page(endpoint)
            target.reader = self._readers.reader_of(endpoint)
            target.endpoint = endpoint
        return target.page

    def _look_for_gaps(self, target: _Target, text: bytes) -> None:
        lacks = target.reader.missing(text)
        if lacks and lacks != target.lacks:
            engine = target.reader.spec.name
            log.warning("endpoint %s: read as %s, its page lacks %s", target.address, engine, ", ".join(lacks))
        target.lacks = lacks

    def _failed(self, target: _Target, reason: str, message: str) -> None:
        target.errors[reason] += 1
        target.fails = message
        target.interval_s = self._pace.after_failure(target.interval_s, endpoints=len(self._targets))
        self._ledger.unwatch(target.address)

    def _expect(self, target: _Target) -> None:
        """Look again when the last reading would be too old. One timer serves many readings."""
        limit_s = self._pace.stale_after(target.interval_s)
        left_s = target.began_at + limit_s - self._clock()
        if left_s <= 0 and not target.stale:
            target.stale = True
            self._pool.mark_stale(target.slot)
            log.warning(
                "endpoint %s: no metrics for %.1f s, so others are preferred: %s",
                target.address,
                limit_s,
                target.fails or "the last reading is still under way",
            )
        target.stale_timer = asyncio.get_running_loop().call_later(
            left_s if left_s > 0 else self._pace.stale_after(0), self._expect, target
        )

    def _cancel(self, target: _Target) -> None:
        for handle in (target.timer, target.stale_timer, target.task):
            if handle is not None:
                handle.cancel()
        if target.page is not None:
            target.page.close()
