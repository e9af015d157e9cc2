"""Checksums find changes in host memory, and a dead thread leaves no job open."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from kvengine.copiers import CheckedCopier, Copier, Direction, Done, HostCopier
from kvengine.copiers.base import JobId
from kvengine.layout import Fragments

SLOT = 4096
PATIENCE_S = 30


class Deadly:
    """Takes the place of addresses, and ends the thread that reads it."""

    def tolist(self) -> list[int]:
        raise SystemExit


class Host:
    """Three slots, and a device that has three blocks of their size."""

    def __init__(self, make: Callable[[int], Copier]) -> None:
        self.slots = np.zeros(3 * SLOT, dtype=np.uint8)
        self.device = np.random.default_rng(0).integers(0, 256, 3 * SLOT, dtype=np.uint8)
        self.copier = make(self.slots.ctypes.data)
        self.jobs = 0

    def submit(self, direction: Direction, slot: int, begin: int = 0, end: int = SLOT) -> JobId:
        self.jobs += 1
        at = slot * SLOT + begin
        fragments = Fragments(
            np.array([self.device.ctypes.data + at]), np.array([self.slots.ctypes.data + at]), np.array([end - begin])
        )
        self.copier.submit(JobId(self.jobs), direction, fragments)
        return JobId(self.jobs)

    def submit_deadly(self, direction: Direction) -> JobId:
        self.jobs += 1
        fragments = Fragments(Deadly(), np.array([self.slots.ctypes.data]), np.array([1]))  # type: ignore[arg-type]
        self.copier.submit(JobId(self.jobs), direction, fragments)
        return JobId(self.jobs)

    def ended(self, count: int) -> dict[JobId, Done]:
        ended: dict[JobId, Done] = {}
        until = time.monotonic() + PATIENCE_S
        while len(ended) < count:
            assert time.monotonic() < until, "a job never ended"
            for each in self.copier.poll():
                assert each.job not in ended, "a job ended twice"
                ended[each.job] = each
            os.sched_yield()
        return ended

    def ok(self, job: JobId) -> bool:
        return self.ended(1)[job].ok


@pytest.fixture
def host() -> Iterator[Host]:
    tested = Host(lambda address: CheckedCopier(HostCopier(), address, SLOT))
    yield tested
    tested.copier.close()
    assert tested.copier.poll() == []


def test_what_was_stored_is_loaded_in_whole_or_in_part(host: Host) -> None:
    before = host.device.copy()
    assert host.ok(host.submit(Direction.STORE, 1))
    host.device[:] = 0
    assert host.ok(host.submit(Direction.LOAD, 1, 100, 200))
    assert host.ok(host.submit(Direction.LOAD, 1))
    assert (host.device[SLOT : 2 * SLOT] == before[SLOT : 2 * SLOT]).all()


@pytest.mark.parametrize("bit", [0, 7])
@pytest.mark.parametrize("at", [0, 1234, SLOT - 1])
def test_one_bit_that_changed_fails_the_load_also_of_another_part(host: Host, at: int, bit: int) -> None:
    for slot in (0, 1):
        assert host.ok(host.submit(Direction.STORE, slot))
    host.slots[SLOT + at] ^= 1 << bit
    assert not host.ok(host.submit(Direction.LOAD, 1, 2000, 2100))
    assert host.ok(host.submit(Direction.LOAD, 0))
    host.slots[SLOT + at] ^= 1 << bit
    assert host.ok(host.submit(Direction.LOAD, 1))


def test_a_slot_that_nothing_was_stored_in_is_not_loaded(host: Host) -> None:
    assert not host.ok(host.submit(Direction.LOAD, 2))


def test_a_slot_that_is_stored_anew_has_a_new_sum(host: Host) -> None:
    assert host.ok(host.submit(Direction.STORE, 0))
    host.device[:] += 1
    assert host.ok(host.submit(Direction.STORE, 0))
    assert host.ok(host.submit(Direction.LOAD, 0))


MAKERS: dict[str, Callable[[int], Copier]] = {
    "host": lambda _: HostCopier(),
    "checked": lambda address: CheckedCopier(HostCopier(), address, SLOT),
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("kind", MAKERS)
def test_when_a_thread_dies_its_jobs_fail_and_those_of_the_other_one_go_on(kind: str) -> None:
    host = Host(MAKERS[kind])
    assert host.ok(host.submit(Direction.STORE, 0))
    deadly = host.submit_deadly(Direction.LOAD)
    others = [host.submit(Direction.LOAD, 0) for _ in range(20)]
    ended = host.ended(21)
    assert not any(ended[job].ok for job in (deadly, *others))
    assert not host.ok(host.submit(Direction.LOAD, 0)), "also those that come later"
    assert host.ok(host.submit(Direction.STORE, 1))
    late = host.submit(Direction.LOAD, 0)
    host.copier.close()
    assert [(each.job, each.ok) for each in host.copier.poll()] == [(late, False)]


@pytest.mark.parametrize("kind", MAKERS)
def test_closing_ends_every_job(kind: str) -> None:
    host = Host(MAKERS[kind])
    for slot in (0, 1, 2) * 10:
        host.submit(Direction.STORE, slot)
    host.copier.close()
    assert len(host.copier.poll()) == 30
