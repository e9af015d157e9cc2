"""The index is restored after a restart, endpoint by endpoint, once its engine is known to be the same."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from pathlib import Path

import pytest

from epp.pool.index_keeper import IndexKeeper, finish_in_time
from epp.pool.pool import Endpoint, EngineMetrics, Pool
from epp.pool.restarts import Restarts
from scorers.base import Candidate, Prompt, Request, Slot, Tier, TierReport
from scorers.prefix.cache import PrefixCache
from scorers.prefix.parameters import ApproxPrefixParameters
from scorers.prefix.producer import ApproxPrefixProducer

A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"
ENGINE = EngineMetrics(block_tokens=16, gpu_blocks=1000, started_s=1e9)


class Picker:
    """The parts of a picker that its index keeper needs, with a clock of its own."""

    def __init__(
        self,
        path: Path,
        *,
        now_s: float = 1e9,
        clock_s: float = 0.0,
        cpu_blocks: int | None = 1000,
        addresses: tuple[str, ...] = (A, B),
        every_s: float = 0.0,
    ) -> None:
        """Start a picker; ``now_s`` is the Unix time at ``clock_s``."""
        parameters = ApproxPrefixParameters(lru_capacity_per_server=cpu_blocks)
        self.producers = [
            ApproxPrefixProducer(ApproxPrefixParameters(), "gpu"),
            ApproxPrefixProducer(parameters, "cpu"),
        ][: 2 if cpu_blocks else 1]
        self.cache: PrefixCache | None = PrefixCache(self.producers)
        self.pool = Pool()
        self.clock_s = clock_s
        unix_s = now_s - clock_s
        self.keeping = IndexKeeper(
            path, self.pool, lambda: self.cache, lambda: unix_s + self.clock_s, lambda: self.clock_s, every_s=every_s
        )
        self.keeping.load()
        self.pool.listeners += [self.cache, Restarts(self.pool, self.cache.endpoint_added), self.keeping]
        self.pool.replace([Endpoint(address) for address in addresses])
        self.keeping.started()

    def read(self, address: str, engine: EngineMetrics = ENGINE, began_at: float = 0.0) -> None:
        candidate = self.pool.candidate(address)
        assert candidate is not None
        self.pool.observe(candidate.slot, engine, began_at)

    def send(self, text: str, address: str) -> None:
        request, candidate = asked(text), self.pool.candidate(address)
        assert candidate is not None
        assert self.cache is not None
        request.picked_s = self.clock_s
        for producer in self.producers:
            producer.produce(request, [candidate])
        self.cache.picked(request, candidate)
        self.cache.index.check_integrity()

    def held(self, text: str) -> dict[str, int]:
        """Return the tokens in the GPU tier by address."""
        request = asked(text)
        self.producers[0].produce(request, [])
        by_slot = request.cached["gpu"].tokens
        return {c.address: by_slot[c.slot] for c in self.pool.candidates() if c.slot in by_slot}

    def end(self) -> None:
        write = self.keeping.save()
        if write is not None:
            write()

    def fates(self) -> dict[str, float]:
        return self.numbers("endpoints")

    def numbers(self, name: str) -> dict[str, float]:
        (reading,) = [each for each in self.keeping.readings() if each.name == f"tierwise_index_snapshot_{name}"]
        return {labels[0]: count for labels, count in reading.samples if count}


def asked(text: str) -> Request:
    prompts = (Prompt(b"m", text.encode()),)
    return Request("id", "m", "m", prompts, prompt_tokens=max(1, len(text) // 4))


TEXT = "x" * 4096
OTHER = "y" * 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of a picker that sent TEXT to A and OTHER to B."""
    path = tmp_path / "index"
    picker = Picker(path)
    picker.read(A)
    picker.read(B)
    picker.send(TEXT, A)
    picker.send(OTHER, B)
    picker.end()
    assert path.exists()
    return path


def test_an_endpoint_holds_what_it_held_once_its_engine_has_spoken(path: Path) -> None:
    picker = Picker(path)
    assert picker.held(TEXT) == {}
    picker.read(A)
    assert picker.held(TEXT) == {A: 1024}
    picker.read(B)
    assert picker.held(OTHER) == {B: 1024}
    assert picker.fates() == {"restored": 2}


@pytest.mark.parametrize(
    "engine",
    [
        EngineMetrics(block_tokens=16, gpu_blocks=1000, started_s=1e9 + 1),
        EngineMetrics(block_tokens=16, gpu_blocks=500, started_s=1e9),
    ],
)
def test_another_engine_at_the_address_holds_nothing(path: Path, engine: EngineMetrics) -> None:
    picker = Picker(path)
    picker.read(A, engine)
    picker.read(B)
    assert picker.held(TEXT) == {}
    assert picker.held(OTHER) == {B: 1024}
    assert picker.fates() == {"restored": 1, "another-engine": 1}


def test_an_engine_that_does_not_say_when_it_began_is_not_believed(path: Path) -> None:
    picker = Picker(path)
    picker.read(A, EngineMetrics(block_tokens=16, gpu_blocks=1000))
    picker.keeping.give_up()
    assert picker.held(TEXT) == {}
    assert picker.fates() == {"unknown-engine": 2}


def test_an_endpoint_that_is_gone_is_counted(path: Path) -> None:
    picker = Picker(path, addresses=(A,))
    picker.pool.replace([])
    picker.keeping.give_up()
    assert picker.fates() == {"gone": 2}


def test_a_snapshot_serves_once(path: Path) -> None:
    Picker(path)
    assert not path.exists()


def test_a_snapshot_that_is_written_while_requests_are_served_outlives_a_crash(path: Path) -> None:
    picker = Picker(path, every_s=60.0)
    assert path.exists(), "it will be written again soon"
    picker.read(A)
    picker.read(B)
    picker.send(TEXT + "z" * 1024, A)
    asyncio.run(picker.keeping.save_while_serving())
    assert picker.numbers("writes") == {"written": 1}
    crashed = Picker(path)
    crashed.read(A)
    assert crashed.held(TEXT + "z" * 1024) == {A: 1280}


def test_what_comes_into_the_slot_of_an_endpoint_that_goes_meanwhile_is_not_kept_as_its_own(tmp_path: Path) -> None:
    picker = Picker(tmp_path / "index")
    picker.read(A)
    picker.read(B)
    for n in range(2000):  # which take more than a slice
        picker.send(f"{n:4}" * 64, A)
    picker.send(TEXT, B)

    async def body() -> None:
        saving = asyncio.create_task(picker.keeping.save_while_serving())
        await asyncio.sleep(0)
        assert not saving.done()
        picker.pool.replace([Endpoint(A), Endpoint(C)])
        picker.send(OTHER, C)
        await saving

    asyncio.run(body())
    again = Picker(tmp_path / "index")
    again.read(B)
    assert (again.held(TEXT), again.held(OTHER)) == ({}, {})


def test_a_write_that_does_not_end_does_not_delay_shutdown(tmp_path: Path) -> None:
    picker = Picker(tmp_path / "index")
    picker.read(A)
    picker.send(TEXT, A)
    before = set(threading.enumerate())
    picker.keeping._writing.acquire()

    async def body() -> list[bool]:
        saving = asyncio.create_task(picker.keeping.save_while_serving())
        async with asyncio.timeout(20):
            while not (writers := set(threading.enumerate()) - before):  # noqa: ASYNC110 - a thread begins
                await asyncio.sleep(0.001)
        saving.cancel()
        picker.keeping._writing.release()
        return [writer.daemon for writer in writers]

    assert asyncio.run(body()) == [True], "nobody waits for it"


def test_a_slow_write_does_not_replace_a_later_one(tmp_path: Path) -> None:
    picker = Picker(tmp_path / "index")
    picker.read(A)
    picker.send(TEXT, A)
    slow = picker.keeping.save()
    picker.send(OTHER, A)
    fast = picker.keeping.save()
    assert slow is not None
    assert fast is not None
    fast()
    slow()
    again = Picker(tmp_path / "index")
    again.read(A)
    assert (again.held(TEXT), again.held(OTHER)) == ({A: 1024}, {A: 1024})


def test_nothing_is_written_over_what_waits_to_be_restored(path: Path) -> None:
    async def body() -> None:
        picker = Picker(path, every_s=1e-9)
        picker.read(A)
        chore = asyncio.create_task(picker.keeping.keep())
        for _ in range(100):
            await asyncio.sleep(0)
        assert not picker.keeping._begun, "B has not spoken"
        picker.read(B)
        async with asyncio.timeout(20):
            while not picker.numbers("writes"):  # noqa: ASYNC110 - a thread writes
                await asyncio.sleep(0.001)
        chore.cancel()

    asyncio.run(body())


def test_a_start_that_fails_leaves_it(path: Path) -> None:
    pool = Pool()
    IndexKeeper(path, pool, lambda: Picker(path.with_name("other")).cache, lambda: 1e9).load()
    assert path.exists()


def test_what_was_sent_meanwhile_is_kept_too(path: Path) -> None:
    picker = Picker(path)
    picker.send(TEXT + "z" * 1024, B)
    picker.read(A)
    picker.read(B)
    assert picker.held(TEXT + "z" * 1024) == {A: 1024, B: 1280}
    assert picker.held(OTHER) == {B: 1024}


def test_several_runs_in_a_row_keep_it(path: Path) -> None:
    for _ in range(3):
        picker = Picker(path)
        picker.read(A)
        picker.read(B)
        picker.end()
    last = Picker(path)
    last.read(A)
    assert last.held(TEXT) == {A: 1024}


def test_other_tiers_make_it_useless_in_one_line(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    picker = Picker(path, cpu_blocks=None)
    picker.read(A)
    assert picker.held(TEXT) == {}
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "is of the tiers gpu, cpu and blocks of 64 tokens, and now there are gpu and 64" in line


def test_an_old_one_is_ignored_in_one_line(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    picker = Picker(path, now_s=1e9 + 7200)
    picker.read(A)
    assert picker.held(TEXT) == {}
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "is not used: it is 7200 s old" in line


def test_a_foreign_file_is_left_alone_at_the_end_too(path: Path) -> None:
    path.write_text("mine")
    picker = Picker(path)
    picker.read(A)
    picker.send(TEXT, A)
    picker.end()
    assert path.read_text() == "mine"


def test_a_file_that_cannot_be_written_is_one_line_and_no_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    picker = Picker(tmp_path / "missing" / "index")
    picker.read(A)
    picker.send(TEXT, A)
    picker.end()
    picker.end()
    assert [r.levelname for r in caplog.records if "is not written" in r.getMessage()] == ["WARNING"]
    assert picker.numbers("writes") == {"failed": 2}


def test_an_empty_index_leaves_no_file(tmp_path: Path) -> None:
    picker = Picker(tmp_path / "index")
    picker.end()
    assert not (tmp_path / "index").exists()


def test_an_endpoint_whose_engine_has_no_identity_is_not_kept(tmp_path: Path) -> None:
    picker = Picker(tmp_path / "index")
    picker.read(A, EngineMetrics(block_tokens=16, gpu_blocks=1000))
    picker.read(B)
    picker.send(TEXT, A)
    picker.send(TEXT, B)
    picker.end()
    again = Picker(tmp_path / "index")
    again.read(A)
    again.read(B)
    assert again.held(TEXT) == {B: 1024}


def test_a_configuration_with_another_index_ends_the_waiting(path: Path) -> None:
    picker = Picker(path)
    picker.cache = PrefixCache(picker.producers)
    picker.read(A)
    assert picker.cache.index.is_empty
    assert picker.fates() == {"unknown-engine": 2}


def test_an_engine_that_was_started_again_holds_nothing(tmp_path: Path) -> None:
    picker = Picker(tmp_path / "index")
    picker.read(A)
    picker.send(TEXT, A)
    picker.read(A, ENGINE, 1.0)
    assert picker.held(TEXT) == {A: 1024}
    picker.read(A, EngineMetrics(block_tokens=16, gpu_blocks=1000, started_s=1e9 + 60), 2.0)
    assert picker.held(TEXT) == {}
    picker.send(TEXT, A)
    assert picker.held(TEXT) == {A: 1024}


def test_restarts_are_distinguished_from_endpoints_that_are_added_again() -> None:
    forgotten: list[Candidate] = []
    pool = Pool()
    pool.listeners.append(restarts := Restarts(pool, forgotten.append))
    for started_s in (1.0, 2.0):
        pool.replace([Endpoint(A)])
        pool.observe(Slot(0), EngineMetrics(started_s=started_s), 0.0)
        pool.replace([])
    assert (forgotten, restarts.seen) == ([], 0), "whoever keeps something has forgotten it with the endpoint"


def told(horizon_s: float) -> EngineMetrics:
    """An engine that reports the GPU tier's eviction horizon, by the picker's clock."""
    tier = TierReport(capacity_tokens=16000, horizon_s=horizon_s, store_after=1)
    return EngineMetrics(block_tokens=16, gpu_blocks=1000, started_s=1e9, tiers={Tier.GPU: tier})


def test_blocks_that_an_engine_evicted_between_two_runs_are_not_held(tmp_path: Path) -> None:
    before = Picker(tmp_path / "index", now_s=1e9, clock_s=1000.0)
    before.read(A, told(-math.inf))
    for text, at in ((TEXT, 1100.0), (OTHER, 1200.0)):
        before.clock_s = at
        before.send(text, A)
    before.clock_s = 1300.0
    before.end()
    after = Picker(tmp_path / "index", now_s=1e9 + 320, clock_s=5.0)
    after.read(A, told(5.0 - 320 + 150))  # it has evicted what was last used at 1150 by the clock before
    assert after.held(TEXT) == {}
    assert after.held(OTHER) == {A: 1024}
    assert after.fates() == {"restored": 1}


@pytest.mark.parametrize("steps", range(6))
def test_a_cancellation_in_the_moment_that_the_file_is_written_is_not_lost(steps: int) -> None:
    async def run() -> None:
        loop, wrote = asyncio.get_running_loop(), asyncio.Event()

        def write() -> None:
            loop.call_soon_threadsafe(wrote.set)

        task = asyncio.create_task(finish_in_time(write))
        await wrote.wait()
        for _ in range(steps):
            await asyncio.sleep(0)
        if task.cancel():
            await asyncio.wait({task})
            assert task.cancelled()

    asyncio.run(run())
