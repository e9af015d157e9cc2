"""Faults, and the choice between ways to copy, on a device in host memory with injected faults."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import numpy as np
import pytest

from kvengine.copiers import Direction, Done
from kvengine.copiers.base import JobId
from kvengine.copiers.choice import SIZES, Timing, Unusable, opened, threshold
from kvengine.copiers.cuda import CudaCopier, KernelBelow
from kvengine.copiers.descriptors import HostPieces
from kvengine.copiers.verify import memory
from kvengine.cuda.driver import DeviceError, Stream
from kvengine.layout import Fragments
from tests.kvengine.copy_site import PIECE_BYTES, RING, WAYS, MemorySite
from tests.kvengine.memory_driver import MemoryDriver

KIB = 1024


@pytest.fixture(params=["direct", "kernel", "mixed"])
def place(request: pytest.FixtureRequest) -> Iterator[MemorySite]:
    tested = MemorySite(request.param)
    yield tested
    tested.memory.refuse = lambda call: False
    tested.memory.dead = False
    tested.close()


def done(copier: CudaCopier, count: int) -> list[Done]:
    ended: list[Done] = []
    until = time.monotonic() + 60
    while len(ended) < count:
        assert time.monotonic() < until, "a job never ended"
        ended += copier.poll()
    return ended


def pieces(device: int, host: int, size: int, count: int) -> Fragments:
    at = np.arange(count, dtype=np.int64) * size
    return Fragments(device + at[::-1], host + at, np.full(count, size, dtype=np.int64))


@pytest.mark.parametrize("call", ["copy", "move", "record", "wait", "block_until", "event"])
@pytest.mark.parametrize("nth", [1, 2, 7])
def test_a_refused_call_fails_its_job_once_and_spoils_no_other(place: MemorySite, call: str, nth: int) -> None:
    count, size = 40, 100
    device, host = place.device(60 * count * size), place.host(60 * count * size)
    random = np.random.default_rng(nth)
    content = random.integers(1, 256, 30 * count * size, dtype=np.uint8)
    place.launch(device, content[:100_000])()
    place.settled()
    expected = place.read(device, 100_000)
    seen = 0

    def refuse(asked: str) -> bool:
        nonlocal seen
        seen += asked == call
        return asked == call and seen == nth

    place.memory.refuse = refuse
    for job in range(20):
        offset = job * count * size
        place.copier.submit(JobId(job), Direction.STORE, pieces(device + offset, host + offset, size, count))
    ended = {each.job: each for each in done(place.cuda, 20)}
    assert len(ended) == 20
    failed = [each for each in ended.values() if not each.ok]
    assert len(failed) == (seen >= nth)
    place.memory.refuse = lambda asked: False
    for job in range(20):
        if ended[JobId(job)].ok:
            offset = job * count * size
            got = memory(host + offset, count * size).reshape(count, size)[::-1].reshape(-1)
            assert (got == expected[offset : offset + count * size]).all()
    assert not place.cuda.dead
    place.copier.submit(JobId(99), Direction.LOAD, pieces(device, host, size, count))
    assert done(place.cuda, 1)[0].ok


def test_a_device_that_answers_no_more_fails_every_job_once(
    place: MemorySite, caplog: pytest.LogCaptureFixture
) -> None:
    device, host = place.device(1 << 16), place.host(1 << 17)
    release = place.launch(device, np.ones(100, dtype=np.uint8))
    for job in range(10):
        place.copier.submit(JobId(job), Direction.STORE, pieces(device, host, 64, 100))
        place.copier.submit(JobId(job + 10), Direction.LOAD, pieces(device + (1 << 15), host + (1 << 16), 64, 100))
    place.memory.dead = True
    for job in range(20, 24):
        place.copier.submit(JobId(job), Direction.LOAD, pieces(device, host, 64, 10))
    ended = done(place.cuda, 24)
    assert {each.job for each in ended} == set(range(24))
    assert not any(each.ok for each in ended if each.job >= 20 or each.direction is Direction.STORE)
    assert place.cuda.dead
    assert caplog.text.count("answers no more, and nothing more is kept") == 1
    place.copier.submit(JobId(50), Direction.STORE, pieces(device, host, 64, 10))
    assert [(each.job, each.ok) for each in place.cuda.poll()] == [(50, False)]
    place.memory.dead = False
    release()


@pytest.mark.parametrize("direction", list(Direction))
def test_a_refused_query_does_not_end_a_copy_early(place: MemorySite, direction: Direction) -> None:
    device, host = place.device(1 << 16), place.host(1 << 16)
    place.launch(device, np.arange(6400, dtype=np.uint8))()
    place.settled()
    memory(host, 6400)[:] = 7
    asked = 0

    def refuse(call: str) -> bool:
        nonlocal asked
        asked += call == "reached"
        return call == "reached" and asked == 1

    place.memory.refuse = refuse
    place.copier.submit(JobId(1), direction, pieces(device, host, 64, 100))
    (only,) = done(place.cuda, 1)
    assert only.ok
    there = place.read(device, 6400).reshape(100, 64)[::-1]
    assert (there == memory(host, 6400).reshape(100, 64)).all()
    assert not place.cuda.dead
    place.copier.submit(JobId(2), direction, pieces(device, host, 64, 100))
    assert done(place.cuda, 1)[0].ok


def test_jobs_after_the_end_fail(place: MemorySite) -> None:
    place.copier.close()
    place.copier.submit(JobId(1), Direction.LOAD, pieces(0, 0, 1, 1))
    assert [(each.job, each.ok) for each in place.cuda.poll()] == [(1, False)]


def test_an_interrupted_close_is_repeated(place: MemorySite) -> None:
    """A signal that ends a worker can interrupt the close: releasing the memory closes the copier again."""
    device, host = place.device(1 << 16), place.host(1 << 16)
    go_on = place.launch(device, np.full(1 << 16, 7, dtype=np.uint8))
    place.copier.submit(JobId(1), Direction.STORE, pieces(device, host, 100, 50))
    asked = []

    def interrupt(call: str) -> bool:
        if call == "synchronize":
            asked.append(call)
            if len(asked) == 1:
                raise KeyboardInterrupt
            go_on()
        return False

    place.memory.refuse = interrupt
    with pytest.raises(KeyboardInterrupt):
        place.copier.close()
    try:
        place.copier.close()
        assert (memory(host, 5000) == 7).all(), "it has ended"
        assert [(each.job, each.ok) for each in place.cuda.poll()] == [(1, True)]
    finally:
        go_on()


# The choice of the way to copy.


class Start:
    """Open a driver, and an arena with one piece pinned."""

    def __init__(self) -> None:
        self.driver = MemoryDriver()
        self.compute = self.driver.stream(urgent=False)
        self.size = 1 << 19
        self.address = self.driver.host_memory(self.size)

    def open(self, budget_s: float = 0.5) -> CudaCopier:
        return opened(self.driver, lambda: self.compute, HostPieces(self.address, self.size), self.size, budget_s)

    def end(self) -> None:
        self.driver.free_host(self.address)
        self.driver.destroy([self.compute], [])
        assert self.driver.mistakes == []
        assert self.driver.leftovers() == ""
        self.driver.close()


@pytest.fixture
def start() -> Iterator[Start]:
    begun = Start()
    yield begun
    begun.driver.garble = lambda call: False
    begun.end()


def test_the_choice_is_measured_and_logged_in_one_line(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        start.open(budget_s=60).close()
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("host memory: loads by the ")
    assert "; stores by the " in line
    assert " 4: " in line
    assert "\n" not in line


def test_without_time_to_measure_the_copy_engines_are_used(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        copier = start.open(budget_s=-1)
    assert copier.kernel_below == KernelBelow()
    assert "no time" in caplog.text
    copier.close()


def test_a_kernel_that_cannot_be_had_is_not_used(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    start.driver.no_kernel = "the run-time compiler (libnvrtc) cannot be used"
    copier = start.open()
    assert copier.kernel_below == KernelBelow()
    assert "all copies go by the copy engines, also small ones: the run-time compiler" in caplog.text
    copier.close()


def test_a_kernel_that_spoils_a_byte_is_never_used(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    start.driver.garble = lambda call: call == "move"
    copier = start.open()
    assert copier.kernel_below == KernelBelow()
    assert "came back wrong" in caplog.text
    copier.close()


def test_copy_engines_that_spoil_a_byte_are_refused(start: Start) -> None:
    start.driver.garble = lambda call: call == "copy"
    with pytest.raises(Unusable, match=r"copies to and from host memory: .* bytes came back wrong"):
        start.open()


def test_a_device_without_memory_for_it_is_refused(start: Start) -> None:
    start.driver.refuse = lambda call: call == "device_memory"
    with pytest.raises(DeviceError, match="device_memory failed"):
        start.open()
    start.driver.refuse = lambda call: False


def test_the_kernel_is_used_up_to_where_the_copy_engines_catch_up() -> None:
    falls = {size: Timing(8.0 if size <= 24 * KIB else 1.0, 1.0) for size in SIZES}
    assert threshold(falls) == 28 * KIB
    assert threshold({size: Timing(1.0, 1.0) for size in SIZES}) == 0
    assert threshold({size: Timing(2.0, 1.0) for size in SIZES}) == 64 * KIB + 1
    assert threshold({}) == 0
    assert threshold({4 * KIB: Timing(1.0, 2.0), 8 * KIB: Timing(2.0, 1.0)}) == 0


def test_the_sizes_of_the_tests_ring_are_small_enough_to_come_round() -> None:
    assert RING.place_bytes * RING.places < 1 << 16
    assert RING.place_bytes < PIECE_BYTES
    assert set(WAYS) == {"direct", "kernel", "mixed"}
    assert Stream(1) == 1
