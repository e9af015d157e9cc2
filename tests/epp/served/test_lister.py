"""The times at which the endpoints' lists are read, and the results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from epp.pool.pool import Endpoint, EngineMetrics, Pool
from epp.scrape.reading.error import ScrapeError
from epp.scrape.reading.specs import EngineSpecs
from epp.served.catalog import Catalog
from epp.served.lister import EVERY_S, LEAST_S, MOST_PER_S, RETRY_S, Lister

ONE = "10.0.0.1:8000"
SGLANG = {"llm-d.ai/engine-type": "sglang"}


@dataclass
class Fake:
    """Engines that respond as the test sets, and a clock that stands still."""

    answers: dict[str, bytes | ScrapeError] = field(default_factory=dict)
    fetched: list[str] = field(default_factory=list)
    closed: int = 0
    now_s: float = 1000.0

    def clock(self) -> float:
        return self.now_s

    def model_list(self, endpoint: Endpoint) -> FakePage:
        return FakePage(self, endpoint.address)


@dataclass
class FakePage:
    fake: Fake
    address: str

    async def fetch(self) -> bytes:
        self.fake.fetched.append(self.address)
        answer = self.fake.answers.get(self.address, b'{"data": [{"id": "a"}]}')
        if isinstance(answer, ScrapeError):
            raise answer
        return answer

    def close(self) -> None:
        self.fake.closed += 1


@dataclass
class Stage:
    pool: Pool
    catalog: Catalog
    lister: Lister
    fake: Fake

    async def settle(self) -> int:
        """Let due work be done; return how many lists have been read."""
        for _ in range(20):
            await asyncio.sleep(0)
        return len(self.fake.fetched)

    def page(self, at: float, started_s: float = 1.0, *models: str) -> None:
        candidate = self.pool.candidate(ONE)
        assert candidate is not None
        self.pool.observe(candidate.slot, EngineMetrics(started_s=started_s, models=frozenset(models)), at)


@asynccontextmanager
async def stage(*endpoints: Endpoint) -> AsyncIterator[Stage]:
    pool, fake = Pool(), Fake()
    catalog = Catalog(pool, lambda _: None)
    pool.listeners.append(catalog)
    lister = Lister(pool, catalog, fake, EngineSpecs(), clock=fake.clock, jitter=lambda: 0.0)
    pool.replace(endpoints or [Endpoint(ONE)])
    lister.start()
    try:
        yield Stage(pool, catalog, lister, fake)
    finally:
        await lister.stop()


def test_an_endpoint_is_read_when_it_is_added_and_its_connection_closed() -> None:
    async def run() -> None:
        async with stage() as it:
            assert await it.settle() == 1
            assert it.catalog.listed(ONE) == {"a"}
            assert it.fake.closed == 1
            assert it.lister._targets[ONE].due_at > it.fake.now_s + 0.9 * EVERY_S

    asyncio.run(run())


def test_lists_are_read_again_but_not_as_often_as_clients_cause_it() -> None:
    async def run() -> None:
        async with stage() as it:
            await it.settle()
            for _ in range(50):
                it.catalog.mark_outdated(ONE)
                it.catalog.mark_outdated(None)
                it.catalog.mark_outdated("10.9.9.9:1")
            assert await it.settle() == 1
            it.fake.now_s += LEAST_S
            it.catalog.mark_outdated(None)
            assert await it.settle() == 2

    asyncio.run(run())


def test_an_unknown_model_has_all_lists_read_in_turn() -> None:
    """One request for an unknown model causes this, and every client can send one."""
    endpoints = [Endpoint(f"10.0.0.{number}:8000") for number in range(100)]

    async def run() -> None:
        async with stage(*endpoints) as it:
            await it.settle()
            it.fake.now_s += LEAST_S
            for _ in range(3):
                it.catalog.mark_outdated(None)
            due_s = sorted(target.due_at - it.fake.now_s for target in it.lister._targets.values())
            assert due_s == pytest.approx([place / MOST_PER_S for place in range(len(endpoints))])

    asyncio.run(run())


def test_many_unknown_models_at_once_look_at_the_endpoints_once() -> None:
    """Clients can send thousands of requests for unknown models in a second."""
    endpoints = [Endpoint(f"10.0.0.{number}:8000") for number in range(100)]

    async def run() -> None:
        async with stage(*endpoints) as it:
            await it.settle()
            it.fake.now_s += LEAST_S
            for _ in range(1000):
                it.catalog.mark_outdated(None)
            assert it.lister.scans == 1
            it.fake.now_s += LEAST_S
            it.catalog.mark_outdated(None)
            assert it.lister.scans == 2

    asyncio.run(run())


def test_lists_that_were_read_a_moment_ago_are_read_again_later() -> None:
    async def run() -> None:
        async with stage() as it:
            await it.settle()
            it.fake.now_s += LEAST_S
            it.catalog.mark_outdated(None)
            assert await it.settle() == 2
            it.catalog.mark_outdated(None)
            assert it.lister._targets[ONE].due_at == it.fake.now_s + EVERY_S * 0.95
            it.lister.read_all_soon()  # what the timer calls
            assert it.lister._targets[ONE].due_at == it.fake.now_s + LEAST_S

    asyncio.run(run())


def test_an_endpoint_of_a_large_pool_is_not_read_again_sooner_whatever_clients_send() -> None:
    endpoints = [Endpoint(f"10.0.{number // 250}.{number % 250}:8000") for number in range(1000)]

    async def run() -> None:
        async with stage(*endpoints) as it:
            await it.settle()
            it.catalog.mark_outdated(endpoints[0].address)
            assert it.lister._targets[endpoints[0].address].due_at == it.fake.now_s + len(endpoints) / MOST_PER_S

    asyncio.run(run())


def test_the_list_of_a_restarted_engine_is_read_again_at_once() -> None:
    async def run() -> None:
        async with stage() as it:
            it.page(1.0, 1.0, "a")
            assert await it.settle() == 1
            it.page(2.0, 2.0, "a")
            assert await it.settle() == 2
            it.page(3.0, 2.0, "b")
            assert await it.settle() == 3
            it.page(4.0, 2.0, "b")
            assert await it.settle() == 3

    asyncio.run(run())


def test_an_endpoint_without_a_list_loses_it_and_one_out_of_reach_keeps_it() -> None:
    async def run() -> None:
        async with stage() as it:
            await it.settle()
            it.fake.answers[ONE] = ScrapeError("refused", reason="connection")
            it.fake.now_s += LEAST_S
            it.catalog.mark_outdated(ONE)
            assert await it.settle() == 2
            assert it.catalog.listed(ONE) == {"a"}
            assert it.lister._targets[ONE].due_at == it.fake.now_s + RETRY_S
            it.fake.answers[ONE] = ScrapeError("answers with status 404", reason="status")
            it.fake.now_s += LEAST_S
            it.catalog.mark_outdated(ONE)
            assert await it.settle() == 3
            assert it.catalog.listed(ONE) is None
            counts = {reading.name: dict(reading.samples) for reading in it.lister.readings()}
            assert counts["tierwise_model_list_errors"] == {("connection",): 1, ("status",): 1}

    asyncio.run(run())


def test_an_engine_that_takes_any_name_is_tried_for_an_unlisted_one() -> None:
    async def run() -> None:
        async with stage(Endpoint(ONE, labels=SGLANG)) as it:
            await it.settle()
            assert it.catalog.served.serving("anything") is None
        async with stage() as it:
            await it.settle()
            assert it.catalog.served.serving("anything") == frozenset()

    asyncio.run(run())


def test_an_endpoint_that_leaves_while_it_is_read_is_forgotten() -> None:
    async def run() -> None:
        async with stage() as it:
            it.pool.replace([])
            assert await it.settle() == 0

    asyncio.run(run())
