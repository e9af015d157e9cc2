"""Reads every endpoint's ``/v1/models``: when it is added, when its engine changes, when its list may be out of date,
and once a minute, since adapters come and go.

Each endpoint has at most one request under way, and no timer meanwhile. Its last list stays while it cannot be reached;
a response that is not a list removes it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Protocol

from epp.metrics.gauges import Reading
from epp.pool.pool import Endpoint, Pool
from epp.scrape.page import Page
from epp.scrape.reading.error import ScrapeError
from epp.scrape.reading.specs import EngineSpecs
from epp.served.card import read_cards
from epp.served.catalog import Catalog
from scorers.base import Candidate, Slot

log = logging.getLogger(__name__)

EVERY_S = 60.0
"""The interval at which each list is read again. A guess: how soon an adapter that was loaded by hand must be known."""
LEAST_S = 5.0
"""Minimum time between two readings of one endpoint, since any client can cause readings. In a large pool it is longer,
so that ``MOST_PER_S`` holds."""
RETRY_S = 1.0
"""Delay after the first failure to reach an endpoint; it doubles with each further failure."""
MOST_PER_S = 20.0
"""Maximum rate of readings, over all endpoints. A reading takes about a millisecond, most of it for a connection."""
ANSWERED = ("status", "page", "size")
"""Reasons of failures in which the endpoint responded, but not with a list."""


class ListClient(Protocol):
    """The interface of ``epp.scrape.client.Client`` that is used here."""

    def model_list(self, endpoint: Endpoint) -> Page:
        """Return what fetches the list of models of ``endpoint``. Raises: ScrapeError."""


class _Target:
    """The state of one endpoint, which always has either a timer or a task."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.read_at = float("-inf")
        self.due_at = 0.0
        self.engine: tuple[object, ...] = ()
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self.again = False
        """Whether it is to be read again soon, by a request that came during a reading."""
        self.failed: str | None = None
        """The reason why the last reading failed; None after a success."""
        self.unreached = 0
        """Number of readings in a row for which the endpoint could not be reached."""


class Lister:
    """Reads the lists of all endpoints. It is a listener of the pool; ``start`` and ``stop`` are called once.

    Owner: the event loop.
    """

    def __init__(
        self,
        pool: Pool,
        catalog: Catalog,
        source: ListClient,
        engines: EngineSpecs,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """``engines`` has the kind of engine of each endpoint."""
        self._pool, self._catalog, self._source, self._engines = pool, catalog, source, engines
        self._clock, self._jitter = clock, jitter
        self._targets: dict[str, _Target] = {}
        self.scans = 0
        """Number of times that the readings of all endpoints were brought forward."""
        self._next_scan: asyncio.TimerHandle | None = None
        self._scan_not_before_s = float("-inf")
        self._reads = 0
        self._errors: Counter[str] = Counter()

    def start(self) -> None:
        """Begin to read the pool's endpoints, and follow its changes."""
        self._pool.listeners.append(self)
        self._catalog.on_outdated.append(self.read_soon)
        for candidate in self._pool.everyone():
            self.endpoint_added(candidate)

    async def stop(self) -> None:
        """Cancel every request and timer."""
        self._pool.listeners.remove(self)
        self._catalog.on_outdated.remove(self.read_soon)
        tasks = [target.task for target in self._targets.values() if target.task is not None]
        for target in self._targets.values():
            _cancel(target)
        if self._next_scan is not None:
            self._next_scan.cancel()
        self._targets.clear()
        await asyncio.gather(*tasks, return_exceptions=True)

    def readings(self) -> Iterator[Reading]:
        """Yield the metrics for ``Telemetry.gauge_source``."""
        yield Reading("tierwise_model_list_reads", "Lists of models read.", (), [((), self._reads)], counter=True)
        yield Reading(
            "tierwise_model_list_errors",
            "Lists of models that could not be read, by reason.",
            ("reason",),
            [((reason,), count) for reason, count in self._errors.items()],
            counter=True,
        )

    def read_soon(self, address: str | None) -> None:
        """Read the endpoint at ``address`` again soon, or each endpoint in turn for None.

        O(1): calls for all endpoints that come before these may be read again are merged into one, later.
        """
        if address is not None:
            if (target := self._targets.get(address)) is not None:
                self._bring_forward(target)
        elif (wait_s := self._scan_not_before_s - self._clock()) <= 0:
            self.read_all_soon()
        elif self._next_scan is None:
            self._next_scan = asyncio.get_running_loop().call_later(wait_s, self.read_all_soon)

    def read_all_soon(self) -> None:
        """Bring forward the next reading of every endpoint."""
        if self._next_scan is not None:
            self._next_scan.cancel()
        self._next_scan, self._scan_not_before_s = None, self._clock() + self._least_s()
        self.scans += 1
        for place, target in enumerate(self._targets.values()):
            self._bring_forward(target, place / MOST_PER_S)

    # PoolListener

    def endpoint_added(self, candidate: Candidate) -> None:
        """Read a new endpoint at once, or soon if many are added together."""
        target = self._targets[candidate.address] = _Target(candidate.address)
        self._schedule(target, self._jitter() * len(self._targets) / 400 if len(self._targets) > 1 else 0.0)

    def endpoint_removed(self, slot: Slot, address: str) -> None:  # noqa: ARG002
        """Cancel the request and timer of a removed endpoint."""
        target = self._targets.pop(address, None)
        if target is not None:
            _cancel(target)

    def engine_reported(self, candidate: Candidate) -> None:
        """Read an endpoint again if its metrics page shows another engine, or other models."""
        target, engine = self._targets.get(candidate.address), self._pool.engine(candidate.address)
        if target is None or engine is None:
            return
        now = (engine.started_s, engine.models, engine.lora.max_loras)
        if target.engine != now:
            known, target.engine = bool(target.engine), now
            if known:
                target.read_at = float("-inf")
                self._bring_forward(target)

    def _bring_forward(self, target: _Target, delay_s: float = 0.0) -> None:
        if target.task is not None:
            target.again = True
            return
        now = self._clock()
        due_at = max(now + delay_s, target.read_at + self._least_s())
        if due_at < target.due_at or target.due_at <= now:
            self._schedule(target, due_at - now)

    def _schedule(self, target: _Target, delay_s: float) -> None:
        if target.timer is not None:
            target.timer.cancel()
        target.due_at = self._clock() + delay_s
        target.timer = asyncio.get_running_loop().call_later(max(0.0, delay_s), self._begin, target)

    def _begin(self, target: _Target) -> None:
        target.timer = None
        target.read_at = self._clock()
        target.task = asyncio.get_running_loop().create_task(self._read(target))

    async def _read(self, target: _Target) -> None:
        page: Page | None = None
        try:
            endpoint = self._pool.endpoint(target.address)
            if endpoint is not None:
                page = self._source.model_list(endpoint)
                cards = read_cards(await page.fetch())
                self._reads += 1
                target.failed, target.unreached = None, 0
                complete = self._engines.spec_of(endpoint.labels).refuses_other_models
                self._catalog.set_list(target.address, cards, complete=complete)
        except ScrapeError as error:
            self._errors[error.reason] += 1
            if error.reason in ANSWERED:
                target.unreached = 0
                self._catalog.remove_list(target.address)
            else:
                target.unreached += 1
            if target.failed != error.reason:
                log.info("endpoint %s: which models it serves is not known: %s", target.address, error)
            target.failed = error.reason
        except Exception:  # one endpoint must not take the others down
            self._errors["internal"] += 1
            log.exception("endpoint %s: reading its models failed", target.address)
        finally:
            if page is not None:
                page.close()  # the next reading is far off
        target.task = None
        if self._targets.get(target.address) is target:
            self._schedule(target, self._pause_s(target))

    def _least_s(self) -> float:
        """Return the minimum time between two readings of one endpoint. One request can cause readings of all."""
        return max(LEAST_S, len(self._targets) / MOST_PER_S)

    def _pause_s(self, target: _Target) -> float:
        """Return the time until ``target`` is read again."""
        again, target.again = target.again, False
        if again:
            return self._least_s()
        every_s = max(EVERY_S, len(self._targets) / MOST_PER_S) * (1 + 0.1 * (self._jitter() - 0.5))
        return min(every_s, RETRY_S * 2.0 ** min(30, target.unreached - 1)) if target.unreached else every_s


def _cancel(target: _Target) -> None:
    for handle in (target.timer, target.task):
        if handle is not None:
            handle.cancel()
