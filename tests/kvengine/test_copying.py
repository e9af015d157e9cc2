"""The arena and the copiers: what every implementation promises."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator

import numpy as np
import pytest

from kvengine.arena import Arena
from kvengine.copiers import Copier, Direction, Done, HostCopier
from kvengine.copiers.base import JobId
from kvengine.errors import NoMemory
from kvengine.layout import Fragments, Layout, Page

PATIENCE_S = 30


@pytest.fixture
def copier() -> Iterator[Copier]:
    tested = HostCopier()
    yield tested
    tested.close()


def done(copier: Copier, count: int) -> dict[JobId, Done]:
    """The next ``count`` jobs to end."""
    ended: dict[JobId, Done] = {}
    until = time.monotonic() + PATIENCE_S
    while len(ended) < count:
        assert time.monotonic() < until, "a job never ended"
        for each in copier.poll():
            assert each.job not in ended, "a job ended twice"
            ended[each.job] = each
    return ended


def test_thousands_of_jobs_end_once_each_and_carry_their_bytes(copier: Copier) -> None:
    random = np.random.default_rng(0)
    device = random.integers(0, 256, 4096 * 64, dtype=np.uint8)
    layout = Layout([Page(device.ctypes.data, 64, 64)], blocks=4096, chunk_blocks=2)
    arena = Arena(2048, layout.slot_bytes)
    arena.start()
    assert arena.wait(PATIENCE_S)
    blocks = random.permutation(4096).reshape(-1, 2).tolist()
    for number, pair in enumerate(blocks):
        copier.submit(JobId(number), Direction.STORE, layout.fragments(pair, [number], 0, arena.address))
    assert all(each.ok and each.copied_bytes == 128 for each in done(copier, 2048).values())
    before = device.copy()
    device[:] = 0
    for number, pair in enumerate(blocks):
        copier.submit(JobId(number), Direction.LOAD, layout.fragments(pair, [number], 0, arena.address))
    done(copier, 2048)
    assert (device == before).all()
    arena.close()


def test_a_job_that_cannot_be_done_ends_as_failed_and_the_next_one_goes_on(copier: Copier) -> None:
    broken = Fragments(np.array([1, 1]), np.array([1]), np.array([0, 0]))
    copier.submit(JobId(1), Direction.LOAD, broken)
    source, target = np.full(8, 7, dtype=np.uint8), np.zeros(8, dtype=np.uint8)
    fine = Fragments(np.array([target.ctypes.data]), np.array([source.ctypes.data]), np.array([8]))
    copier.submit(JobId(2), Direction.LOAD, fine)
    ended = done(copier, 2)
    assert (ended[JobId(1)].ok, ended[JobId(2)].ok) == (False, True)
    assert (target == 7).all()


def test_closing_ends_every_job(copier: Copier) -> None:
    source, target = np.zeros(1 << 20, dtype=np.uint8), np.zeros(1 << 20, dtype=np.uint8)
    piece = Fragments(np.array([target.ctypes.data]), np.array([source.ctypes.data]), np.array([1 << 20]))
    for number in range(50):
        copier.submit(JobId(number), Direction.LOAD, piece)
    copier.close()
    assert len(copier.poll()) == 50


def test_an_arena_becomes_ready_piece_by_piece_and_is_zero() -> None:
    arena = Arena(300, 1 << 20)
    assert arena.ready_slots == 0
    arena.start()
    assert arena.wait(PATIENCE_S)
    assert arena.ready_slots == 300
    assert ctypes.string_at(arena.address + (299 << 20), 1 << 20) == bytes(1 << 20)
    arena.close()
    arena.close()


def test_memory_that_cannot_be_pinned_leaves_what_could() -> None:
    def pin(address: int, size: int) -> None:
        pinned.append(size)
        if len(pinned) == 3:
            raise NoMemory("no more")

    pinned: list[int] = []
    arena = Arena(300, 1 << 20, pin)
    arena.start()
    assert arena.wait(PATIENCE_S)
    assert arena.ready_slots == 128
    arena.close()


def test_memory_that_the_kernel_does_not_give_is_refused_with_its_size() -> None:
    with pytest.raises(NoMemory, match="bytes of host memory cannot be had"):
        Arena(1 << 20, 1 << 40)
