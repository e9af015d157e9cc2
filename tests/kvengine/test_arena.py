"""Host memory becomes ready piece by piece, near its device, and is released by its close."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from pathlib import Path

import pytest

from kvengine.arena import HUGE_BYTES, PIECE_BYTES, Arena
from kvengine.cuda.driver import DeviceError
from kvengine.errors import NoMemory
from kvengine.numa import cpus_near, parsed, stay_on

PATIENCE_S = 60
MIB = 1 << 20


class Pinned:
    """Records which memory is pinned now, and which ever was."""

    def __init__(self, most_pieces: int = 1 << 20, *, lets_go: bool = True) -> None:
        self.now: dict[int, int] = {}
        self.sizes: list[int] = []
        self.most_pieces = most_pieces
        self.lets_go = lets_go

    def pin(self, address: int, size_bytes: int) -> None:
        if len(self.sizes) == self.most_pieces:
            raise NoMemory("no more")
        self.sizes.append(size_bytes)
        self.now[address] = size_bytes

    def unpin(self, address: int) -> None:
        if not self.lets_go:
            raise DeviceError("the context is gone")
        del self.now[address]


def test_an_arena_becomes_ready_piece_by_piece_and_is_zero() -> None:
    arena = Arena(300, MIB)
    assert (arena.ready_slots, arena.attainable_slots) == (0, 300)
    assert arena.statistics().first_ready_s is None
    arena.start()
    assert arena.wait_for_first(PATIENCE_S) >= PIECE_BYTES
    assert arena.wait(PATIENCE_S)
    assert arena.ready_slots == 300
    assert arena.address % HUGE_BYTES == 0
    assert ctypes.string_at(arena.address + (299 << 20), MIB) == bytes(MIB)
    arena.close()
    arena.close()
    assert (arena.ready_slots, arena.address) == (0, 0)


def test_pieces_are_pinned_in_order_and_unpinned_at_the_end_and_what_it_cost_is_known() -> None:
    pinned = Pinned()
    arena = Arena(300, MIB, pinned)
    arena.start()
    assert arena.wait(PATIENCE_S)
    begins = [arena.address + at for at in range(0, 300 * MIB, PIECE_BYTES)]
    assert list(pinned.now) == begins
    assert max(pinned.sizes) <= 64 * MIB
    assert sum(pinned.sizes) == 300 * MIB
    seen = arena.statistics()
    assert (seen.ready_bytes, seen.pinned_pieces) == (300 * MIB, 5)
    assert seen.first_ready_s is not None
    assert seen.all_ready_s is not None
    assert 0 < seen.first_ready_s <= seen.all_ready_s
    assert 0 < seen.pin_max_s <= seen.pin_total_s
    arena.close()
    assert pinned.now == {}


def test_memory_that_cannot_be_pinned_leaves_what_could() -> None:
    pinned = Pinned(most_pieces=2)
    arena = Arena(300, MIB, pinned)
    arena.start()
    assert arena.wait(PATIENCE_S)
    assert (arena.ready_slots, arena.attainable_slots) == (128, 128)
    assert arena.statistics().all_ready_s is None
    arena.close()
    assert pinned.now == {}


def test_waiting_for_an_arena_of_which_nothing_can_be_pinned_returns_0() -> None:
    arena = Arena(8, MIB, Pinned(most_pieces=0))
    arena.start()
    assert arena.wait_for_first(PATIENCE_S) == 0
    arena.close()


def test_memory_that_the_kernel_does_not_give_is_refused_with_its_size() -> None:
    with pytest.raises(NoMemory, match="bytes of host memory cannot be had"):
        Arena(1 << 20, 1 << 40)


def test_an_arena_that_is_closed_while_it_becomes_ready_leaves_nothing_pinned() -> None:
    for _ in range(5):
        pinned = Pinned()
        arena = Arena(512, MIB, pinned)
        arena.start()
        arena.close()
        assert pinned.now == {}
        assert arena.wait(0)


def test_an_arena_that_was_never_started_can_be_closed() -> None:
    Arena(8, MIB).close()


def test_an_unreferenced_arena_is_released() -> None:
    pinned = Pinned()
    arena = Arena(8, MIB, pinned)
    arena.start()
    assert arena.wait(PATIENCE_S)
    assert pinned.now
    del arena
    gc.collect()
    assert pinned.now == {}


def test_a_device_that_does_not_let_go_does_not_keep_an_arena_from_closing(caplog: pytest.LogCaptureFixture) -> None:
    arena = Arena(8, MIB, Pinned(lets_go=False))
    arena.start()
    assert arena.wait(PATIENCE_S)
    arena.close()
    assert "stays pinned until the process ends: the context is gone" in caplog.text


def test_memory_of_which_it_is_not_known_whether_a_copy_uses_it_is_never_given_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def end() -> None:
        raise DeviceError("no answer")

    pinned = Pinned()
    arena = Arena(8, MIB, pinned)
    arena.start()
    assert arena.wait(PATIENCE_S)
    address, now = arena.address, dict(pinned.now)
    arena.end_before(end)
    arena.close()
    del arena
    gc.collect()
    assert "it is kept until the process ends" in caplog.text
    ctypes.memset(address, 1, 8 * MIB)
    assert pinned.now == now


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_memory_whose_end_is_interrupted_is_not_given_back() -> None:
    def end() -> None:
        raise SystemExit  # as a worker's signal handler does, at any point of the program

    pinned = Pinned()
    arena = Arena(8, MIB, pinned)
    arena.start()
    assert arena.wait(PATIENCE_S)
    address, now = arena.address, dict(pinned.now)
    arena.end_before(end)
    with pytest.raises(SystemExit):
        arena.close()
    del arena
    gc.collect()
    ranges = [line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines()]
    assert any(int(low, 16) <= address < int(high, 16) for low, high in ranges), "a copy may still write there"
    assert pinned.now == now


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_core_dump_is_not_as_large_as_the_arena() -> None:
    arena = Arena(8, MIB)
    flags: list[str] = []
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            low, high = (int(bound, 16) for bound in words[0].split("-"))
            inside = low <= arena.address < high
        elif inside and words[0] == "VmFlags:":
            flags += words[1:]
    assert {"dd", "dc"} <= set(flags), "neither dumped nor inherited"
    arena.close()


# Near the device.


def test_the_cpus_near_a_device_are_those_of_its_node(tmp_path: Path) -> None:
    mine = sorted(os.sched_getaffinity(0))
    device = tmp_path / "sys/bus/pci/devices/0000:1b:00.0"
    node = tmp_path / "sys/devices/system/node/node1"
    device.mkdir(parents=True)
    node.mkdir(parents=True)
    (device / "numa_node").write_text("1\n")
    (node / "cpulist").write_text(f"{mine[0]},100000-100003\n")
    assert cpus_near("0000:1B:00.0", tmp_path) == {mine[0]}
    (device / "numa_node").write_text("-1\n")
    assert cpus_near("0000:1B:00.0", tmp_path) == frozenset()
    assert cpus_near("0000:ff:00.0", tmp_path) == frozenset()
    assert cpus_near(None) == frozenset()


def test_lists_of_cpus_are_read_as_the_kernel_writes_them() -> None:
    assert parsed("0-3,8,10-11\n") == {0, 1, 2, 3, 8, 10, 11}
    assert parsed("\n") == frozenset()


def test_an_arena_is_touched_from_the_configured_cpus() -> None:
    near = frozenset([min(os.sched_getaffinity(0))])
    before = os.sched_getaffinity(0)
    arena = Arena(8, MIB, near=near)
    arena.start()
    assert arena.wait(PATIENCE_S)
    arena.close()
    assert os.sched_getaffinity(0) == before, "only the touching threads are bound"
    stay_on(frozenset())


def test_cpus_that_are_none_do_not_keep_an_arena_from_becoming_ready(caplog: pytest.LogCaptureFixture) -> None:
    arena = Arena(8, MIB, near=frozenset([100_000]))
    arena.start()
    assert arena.wait(PATIENCE_S)
    assert arena.ready_slots == 8
    assert "touched from any CPU" in caplog.text
    arena.close()
