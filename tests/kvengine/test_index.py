"""The slots of chunks, compared with a naive model."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kvengine.errors import NoSpace
from kvengine.index import ChunkIndex, ChunkKey

A, B, C, D = (ChunkKey(bytes([n])) for n in range(4))


def idle(*keys: ChunkKey, slots: int) -> ChunkIndex:
    index = ChunkIndex(slots)
    for key in keys:
        index.insert([key])
        index.commit([key])
        index.unpin([key])
    return index


def test_evicts_the_least_recently_used_idle_chunk() -> None:
    index = idle(A, B, slots=2)
    index.pin([A])
    index.unpin([A])
    assert index.insert([C]).evicted == [B]


def test_a_refused_insert_changes_nothing() -> None:
    index = idle(A, B, slots=2)
    index.pin([A])
    with pytest.raises(NoSpace, match="2 slots wanted; 0 free, 1 idle"):
        index.insert([C, D])
    assert index.match([A, B]) == 2


def test_a_chunk_is_found_when_it_is_written_and_not_before() -> None:
    index = ChunkIndex(2)
    index.insert([A, B])
    assert (index.match([A, B]), index.ready) == (0, 0)
    index.commit([A])
    assert (index.match([A, B]), index.ready) == (1, 1)
    index.forget(A)
    assert (index.ready, index.resident) == (0, 2)


def test_a_chunk_that_could_not_be_written_leaves_its_slot_free() -> None:
    index = ChunkIndex(1)
    index.insert([A])
    index.drop([A])
    assert A not in index
    assert index.insert([B]).evicted == []


def test_what_others_build_upon_outlives_them() -> None:
    index = ChunkIndex(3)
    index.insert([A, B, C])
    index.commit([A, B, C])
    index.unpin([C, B, A])
    assert index.insert([D]).evicted == [C]


def test_the_generation_changes_when_a_lookup_could_answer_otherwise() -> None:
    index = ChunkIndex(1)
    before = index.generation
    index.insert([A])
    assert index.generation == before
    index.commit([A])
    assert index.generation > before
    before = index.generation
    index.pin([A])
    index.unpin([A])
    index.unpin([A])
    assert index.generation == before
    index.insert([B])
    assert index.generation > before


class AnyHistory(RuleBasedStateMachine):
    """Compare the index with dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self.index = ChunkIndex(0)
        self.slots = 0
        self.pins: dict[ChunkKey, int] = {}
        self.ready: set[ChunkKey] = set()
        self.written: set[ChunkKey] = set()
        self.forgotten: set[ChunkKey] = set()
        self.idle: list[ChunkKey] = []  # oldest first

    keys = st.integers(0, 7).map(lambda n: ChunkKey(bytes([n])))

    @rule(slots=st.integers(0, 5))
    def grow(self, slots: int) -> None:
        self.index.grow(slots)
        self.slots = max(self.slots, slots)

    @rule(wanted=st.lists(keys, unique=True, max_size=4))
    def insert(self, wanted: list[ChunkKey]) -> None:
        held = [key for key in wanted if key in self.pins]
        free = self.slots - len(self.pins)
        if held:
            with pytest.raises(ValueError, match="held already"):
                self.index.insert(wanted)
        elif len(wanted) > free + len(self.idle):
            with pytest.raises(NoSpace):
                self.index.insert(wanted)
        else:
            victims = self.idle[: max(0, len(wanted) - free)]
            assert self.index.insert(wanted).evicted == victims
            for key in victims:
                self.idle.remove(key)
                self.ready.remove(key)
                self.written.remove(key)
                del self.pins[key]
            self.pins |= dict.fromkeys(wanted, 1)

    @rule(key=keys)
    def commit(self, key: ChunkKey) -> None:
        if key in self.pins and key not in self.written:
            kept = [] if key in self.forgotten else [key]
            assert self.index.commit([key]) == kept
            self.written.add(key)
            self.ready.update(kept)

    @rule(key=keys)
    def drop(self, key: ChunkKey) -> None:
        if key in self.pins and key not in self.written:
            self.index.drop([key])
            self.forgotten.discard(key)
            del self.pins[key]
        else:
            with pytest.raises(KeyError):
                self.index.drop([key])

    @rule(key=keys)
    def pin(self, key: ChunkKey) -> None:
        if key not in self.ready:
            with pytest.raises(KeyError):
                self.index.pin([key])
            return
        self.index.pin([key])
        self.pins[key] += 1
        if key in self.idle:
            self.idle.remove(key)

    @rule(key=keys)
    def unpin(self, key: ChunkKey) -> None:
        if not self.pins.get(key) or key not in self.written:
            with pytest.raises(KeyError):
                self.index.unpin([key])
            return
        self.index.unpin([key])
        self.pins[key] -= 1
        if self.pins[key]:
            return
        if key in self.forgotten:
            self.gone(key)
        else:
            self.idle.append(key)

    def gone(self, key: ChunkKey) -> None:
        self.forgotten.discard(key)
        self.written.remove(key)
        del self.pins[key]

    @rule(key=keys)
    def forget(self, key: ChunkKey) -> None:
        assert self.index.forget(key) == (key in self.ready)
        self.out_of_sight(key)

    def out_of_sight(self, key: ChunkKey) -> None:
        self.ready.discard(key)
        if key in self.idle:
            self.idle.remove(key)
            self.gone(key)
        elif key in self.pins:
            self.forgotten.add(key)

    @rule()
    def clear(self) -> None:
        found = self.index.clear()
        assert found[: len(self.idle)] == self.idle
        assert set(found) == self.ready
        for key in list(self.pins):
            self.out_of_sight(key)

    @invariant()
    def nothing_is_lost_or_shared(self) -> None:
        self.index.check()
        assert (self.index.resident, self.index.pinned) == (len(self.pins), len(self.pins) - len(self.idle))
        assert self.index.ready == len(self.ready)
        assert all(
            self.index.match([key]) == (key in self.ready) for key in map(ChunkKey, (bytes([n]) for n in range(8)))
        )


AnyHistory.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
test_any_history = AnyHistory.TestCase


def test_the_horizon_is_the_latest_last_use_of_what_is_gone() -> None:
    now = [100.0]
    index = ChunkIndex(2, clock=lambda: now[0])
    for key in (A, B):
        index.insert([key])
        index.commit([key])
        index.unpin([key])
        now[0] += 10
    assert index.horizon_s == 0
    index.pin([A])
    index.unpin([A])  # at 120
    index.insert([C])  # evicts B, which was last used at 110
    assert index.horizon_s == 110
    index.commit([C])
    index.unpin([C])
    now[0] = 50  # a clock that was set back
    index.clear()
    assert index.horizon_s == 120


def test_what_was_in_use_until_now_ages_anew_in_the_order_named() -> None:
    now = [100.0]
    index = ChunkIndex(3, clock=lambda: now[0])
    for key in (A, B, C):
        index.insert([key])
        index.commit([key])
        index.unpin([key])
    index.pin([C])
    now[0] = 200.0
    index.refresh([B, A, C, D])
    assert index.insert([D]).evicted == [B]
    assert index.horizon_s == 200
    index.check()
