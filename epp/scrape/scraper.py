"""Keeps the pool's numbers fresh by reading every endpoint's metrics, each at its own pace.

    timer ─► fetch ─► read ─► pool.observe, ledger.reconcile ─► next timer
      ▲ a pick brings it forward

Each endpoint has its own timer and at most one request under way, so that a slow one does not delay the others.
Rejected: a queue with workers (64 slow endpoints would block it), and one loop over all (the slowest would set the
pace).
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterator

from msgspec import structs

from epp.decision import Cause
from epp.metrics.gauges import Reading
from epp.pool.ledger import Ledger
from epp.pool.pool import Endpoint, Pool
from epp.scrape.client import Client
from epp.scrape.outage import Outages
from epp.scrape.pace import Pace
from epp.scrape.page import Page
from epp.scrape.parameters import DATA_SOURCE_TYPE, EXTRACTOR_TYPE, ScrapeParameters
from epp.scrape.reading.error import ScrapeError
from epp.scrape.reading.readers import Readers
from epp.scrape.reading.tiers import TierReader
from epp.scrape.state import ScrapeState
from epp.scrape.target import Target
from scorers.base import Candidate, Slot

log = logging.getLogger(__name__)

READING_SHARE = 0.05
"""Maximum share of the time for parsing one endpoint's page: a page that takes long is read rarely. Source: a page of
100 KB takes 0.05 ms (benchmarks/picker/idle_scrape.py), which allows every interval; the worst of 8 MiB 80 ms."""
JITTER = 0.1
"""Share of an interval by which it varies, so that endpoints that were added together drift apart."""


class Scraper:
    """Reads the metrics of all endpoints. It is a listener of the pool; ``start`` and ``stop`` are called once.

    Owner: the event loop.
    """

    def __init__(
        self,
        pool: Pool,
        ledger: Ledger,
        parameters: ScrapeParameters,
        pace: Pace,
        *,
        ended: Callable[[int, Cause], object] | None = None,
        page_read: Callable[[str, bytes], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """``ended`` closes the picks that an engine no longer has; by default, it is the ledger's ``close``.
        ``page_read`` is called with each page that was read and its address. ``clock`` is the clock of the picks."""
        self._pool = pool
        self._ledger = ledger
        self._pace = pace
        self._parameters = parameters
        self.client: Client  # from start to stop
        """The client that fetches pages as the configuration describes."""
        self._readers = Readers(parameters.engines)
        self._ended = ended or ledger.close
        self._page_read = page_read
        self._clock = clock
        self._jitter = jitter
        self._targets: dict[str, Target] = {}
        self._outages = Outages(pool, self._targets, clock)
        self._poll_errors = self._extract_errors = 0
        self._scrapes = 0
        self._bytes = 0

    async def start(self) -> None:
        """Begin to read the pool's endpoints, and follow its changes.

        Raises: ConfigError for certificates that cannot be read.
        """
        self.client = Client(self._parameters, self._pace.timeout_s)
        self._pool.listeners.append(self)
        self._pool.on_busy.append(self._wake)
        for candidate in self._pool.everyone():
            self.endpoint_added(candidate)

    async def stop(self) -> None:
        """Cancel every request under way, and close the connections."""
        self._pool.listeners.remove(self)
        self._pool.on_busy.remove(self._wake)
        tasks = [target.task for target in self._targets.values() if target.task is not None]
        for target in self._targets.values():
            self._cancel(target)
        self._targets.clear()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.client.close()

    def readings(self) -> Iterator[Reading]:
        """Yield the metrics for ``Telemetry.gauge_source``."""
        yield Reading("tierwise_scrapes", "Metrics pages read.", (), [((), self._scrapes)], counter=True)
        yield Reading("tierwise_scraped_bytes", "Their size.", (), [((), self._bytes)], counter=True)
        yield Reading(
            "tierwise_scrape_errors",
            "Metrics pages that could not be read, by endpoint and reason.",
            ("endpoint", "reason"),
            [((t.address, reason), n) for t in self._targets.values() for reason, n in t.errors.items()],
            counter=True,
        )
        source, extractor = DATA_SOURCE_TYPE, EXTRACTOR_TYPE
        text, polled = "Metrics pages that could not be had.", [((source,), self._poll_errors)]
        yield Reading("llm_d_epp_datalayer_poll_errors", text, ("source_type",), polled, counter=True)
        yield Reading(
            "llm_d_epp_datalayer_extract_errors",
            "Metrics pages that could not be understood.",
            ("source_type", "extractor_type"),
            [((source, extractor), self._extract_errors)],
            counter=True,
        )
        yield Reading(
            "tierwise_scrape_interval_seconds",
            "The interval in force.",
            ("endpoint",),
            [((target.address,), target.interval_s) for target in self._targets.values()],
        )

    def states(self) -> dict[str, ScrapeState]:
        """Return the state of reading each endpoint, by address."""
        now = self._clock()
        return {
            t.address: ScrapeState(now - t.began_at, t.interval_s, t.stale, t.failure, dict(t.errors))
            for t in self._targets.values()
        }

    # PoolListener

    def endpoint_added(self, candidate: Candidate) -> None:
        """Read a new endpoint at once, or soon if many are added together."""
        interval_s = self._pace.slowest(len(self._pool))
        target = Target(candidate.slot, candidate.address, self._clock(), interval_s)
        self._targets[target.address] = target
        spread_s = min(interval_s, len(self._targets) / self._pace.most_per_s)
        self._schedule(target, target.began_at + self._jitter() * spread_s)
        self._check_age(target)

    def endpoint_removed(self, slot: Slot, address: str) -> None:  # noqa: ARG002
        """Cancel the request and timers of a removed endpoint."""
        target = self._targets.pop(address, None)
        if target is not None:
            self._cancel(target)

    def engine_reported(self, candidate: Candidate) -> None:
        """Do nothing: the report came from this scraper."""

    def _wake(self, address: str) -> None:
        """Bring the next reading forward, because the endpoint got a request. It is read at once if its last reading is
        older than the interval in force, since it may have other clients. A failing endpoint keeps its pace."""
        target = self._targets.get(address)
        if target is None or target.timer is None or target.failure:
            return
        interval_s = max(target.least_s, self._pace.at_pick(self._ledger.busy_endpoints()))
        at = max(self._clock(), target.began_at + interval_s)
        if at < target.due_at:
            target.timer.cancel()
            target.interval_s = interval_s
            self._schedule(target, at)

    def _schedule_next(self, target: Target, delay_s: float) -> None:
        """Schedule the next reading in about ``delay_s``, at a time that a few endpoints share."""
        delay_s *= 1 + JITTER * (self._jitter() - 0.5)
        sharing = self._ledger.busy_endpoints() if self._ledger.in_flight(target.address) else len(self._targets)
        self._schedule(target, self._pace.due(self._clock() + delay_s, target.interval_s, sharing))

    def _schedule(self, target: Target, at: float) -> None:
        target.due_at = at
        target.timer = asyncio.get_running_loop().call_later(max(0.0, at - self._clock()), self._begin, target)

    def _begin(self, target: Target) -> None:
        target.timer = None
        target.task = asyncio.get_running_loop().create_task(self._scrape(target))

    async def _scrape(self, target: Target) -> None:
        began_at = self._clock()
        try:
            await self._read(target, began_at)
        except ScrapeError as error:
            self._failed(target, error)
        except Exception as error:  # one endpoint must not take the others down
            if "internal" not in target.logged:
                log.exception("endpoint %s: reading its metrics failed", target.address)
                target.logged.add("internal")
            self._failed(target, ScrapeError(repr(error), reason="internal"))
        target.task = None
        if self._targets.get(target.address) is target:
            self._schedule_next(target, max(0.0, target.interval_s - (self._clock() - began_at)))

    async def _read(self, target: Target, began_at: float) -> None:
        """Fetch and parse one page, and pass its numbers on. Raises: ScrapeError."""
        endpoint = self._pool.endpoint(target.address)
        if endpoint is None:
            return
        page = self._page(target, endpoint)
        text = await page.fetch()
        received_at, reading_at = self._clock(), time.perf_counter()
        try:
            engine = target.reader.read(text)
            if tiers := target.tiers.read(text, received_at):
                engine = structs.replace(engine, tiers=tiers)
        finally:
            target.least_s = (time.perf_counter() - reading_at) / READING_SHARE
        self._scrapes += 1
        self._bytes += len(text)
        self._pool.observe(target.slot, engine, began_at)
        if engine.doubted or target.doubted:
            target.count_doubted(engine.doubted)
        if self._page_read is not None:
            self._page_read(target.address, text)
        if not engine.partial:
            for pick_id, cause in self._ledger.reconcile(target.address, engine.waiting + engine.running, began_at):
                self._ended(pick_id, cause)
        target.began_at, target.failure = began_at, None
        interval_s = self._pace.after_success(
            target.interval_s,
            in_flight=self._ledger.in_flight(target.address) > 0,
            busy=self._ledger.busy_endpoints(),
            endpoints=len(self._targets),
        )
        target.interval_s = max(interval_s, target.least_s)
        target.logged.clear()
        target.answers = True
        if target.silence is not None:
            self._outages.answered(target)
            self._look_for_gaps(target, text)

    def _page(self, target: Target, endpoint: Endpoint) -> Page:
        """Return what fetches the page of ``endpoint``, kept until the endpoint changes. Raises: ScrapeError."""
        if target.page is None or target.endpoint is not endpoint:
            if target.page is not None:
                target.page.close()
                target.page = None
            target.page = self.client.page(endpoint)
            target.elsewhere = self.client.elsewhere(endpoint)
            target.reader = self._readers.reader_of(endpoint)
            target.tiers = TierReader()
            target.endpoint = endpoint
        return target.page

    def _look_for_gaps(self, target: Target, text: bytes) -> None:
        missing = target.reader.missing(text)
        if missing and missing != target.missing:
            engine = target.reader.spec.name
            log.warning("endpoint %s: read as %s, its page lacks %s", target.address, engine, ", ".join(missing))
        target.missing = missing

    def _failed(self, target: Target, error: ScrapeError) -> None:
        reason, message = error.reason, str(error)
        target.errors[reason] += 1
        target.tiers.look_again()
        if reason in ("page", "internal"):
            self._extract_errors += 1
        else:
            self._poll_errors += 1
        target.failure, target.answers = message, error.answered
        interval_s = self._pace.after_failure(target.interval_s, endpoints=len(self._targets))
        target.interval_s = max(interval_s, target.least_s)
        if target.reported and reason not in target.logged:
            log.warning("endpoint %s: its metrics cannot be read: %s", target.address, message)
        target.logged.add(reason)
        self._outages.failed(target, error)
        self._ledger.unwatch(target.address)

    def _check_age(self, target: Target) -> None:
        """Begin an outage if the last reading is too old, and plan the next check. One timer serves many readings.

        An endpoint whose first reading has not ended yet, as on busy cores at a start, is not late.
        """
        limit_s = self._pace.stale_after(target.interval_s)
        left_s = target.began_at + limit_s - self._clock()
        had_its_chance = target.silence is None or target.failure is not None
        if left_s <= 0 and not target.reported and had_its_chance:
            if target.failure is None:
                target.logged.add("timeout")  # the log line has this reason
            self._outages.late(target, limit_s)
        target.stale_timer = asyncio.get_running_loop().call_later(
            left_s if left_s > 0 else self._pace.stale_after(0), self._check_age, target
        )

    def _cancel(self, target: Target) -> None:
        for handle in (target.timer, target.stale_timer, target.task):
            if handle is not None:
                handle.cancel()
        if target.page is not None:
            target.page.close()
