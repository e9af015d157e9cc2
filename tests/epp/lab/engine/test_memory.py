"""The two block stores against models so naive that they cannot be wrong."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.lab.engine.cpu import CpuBlocks, Lane
from epp.lab.engine.gpu import GpuBlocks

A, B, C, D = "ABCD"


def idle(blocks: GpuBlocks, *keys: str) -> None:
    """Leave ``keys`` cached, released in prefix order."""
    blocks.take((), len(keys))
    blocks.name(keys)
    blocks.release(keys, 0)


def test_a_prefix_outlives_what_follows_it() -> None:
    blocks = GpuBlocks(3)
    idle(blocks, A, B, C)
    assert blocks.oldest(3) == [C, B, A]


def test_unnamed_blocks_are_reused_before_a_cached_one_is_evicted() -> None:
    blocks = GpuBlocks(3)
    idle(blocks, A)
    blocks.take((), 2)
    assert blocks.matched([A]) == 1
    blocks.release((), 2)
    blocks.take((), 2)
    assert blocks.evicted == 0


def test_a_pinned_block_is_never_evicted() -> None:
    blocks = GpuBlocks(2)
    idle(blocks, A, B)
    blocks.take([A], 1)
    assert blocks.matched([A]) == 1
    assert blocks.matched([B]) == 0


def test_a_refused_take_changes_nothing() -> None:
    blocks = GpuBlocks(2)
    idle(blocks, A, B)
    assert not blocks.can_take([A], 2)
    with pytest.raises(MemoryError, match="2 blocks wanted; 0 free, 2 idle of 2"):
        blocks.take([A], 2)
    assert blocks.oldest(2) == [B, A]
    blocks.check()


def test_a_block_computed_twice_is_cached_once() -> None:
    blocks = GpuBlocks(2)
    blocks.take((), 2)
    assert blocks.name([A]) == [A]
    assert blocks.name([A]) == []
    assert (blocks.used, blocks.cached) == (2, 1)


def test_a_reset_forgets_idle_blocks_only() -> None:
    blocks = GpuBlocks(3)
    idle(blocks, A, B)
    blocks.take([A], 0)
    blocks.reset()
    assert blocks.matched([A]) == 1
    assert blocks.matched([B]) == 0
    blocks.check()


MOVES = st.lists(st.tuples(st.sampled_from("take give"), st.integers(0, 5), st.integers(0, 4)), max_size=40)


@given(st.integers(1, 8), MOVES)
def test_no_gpu_block_is_lost_or_shared(capacity: int, moves: list[tuple[str, int, int]]) -> None:
    blocks = GpuBlocks(capacity)
    held: list[tuple[list[str], int]] = []
    for kind, prefix, length in moves:
        keys = [f"{prefix}.{n}" for n in range(length)]
        if kind == "give":
            if held:
                blocks.release(*held.pop(0))
            continue
        hits = keys[: blocks.matched(keys)]
        private = len(keys) - len(hits) + 1
        if not blocks.can_take(hits, private):
            continue
        blocks.take(hits, private)
        named = [*hits, *blocks.name(keys[len(hits) :])]
        held.append((named, private - (len(named) - len(hits))))
        blocks.check()
        assert blocks.used <= capacity
    for item in held:
        blocks.release(*item)
    blocks.check()
    assert blocks.used == 0


@given(st.integers(1, 8), MOVES)
def test_what_was_used_after_the_horizon_is_still_in_gpu_memory_and_what_is_gone_was_used_before(
    capacity: int, moves: list[tuple[str, int, int]]
) -> None:
    blocks, used_s = GpuBlocks(capacity), dict[str, float]()
    for now, (kind, prefix, length) in enumerate(moves):
        if kind == "give":
            blocks.reset()
        keys = [f"{prefix}.{n}" for n in range(min(length, capacity - 1))]
        hits = keys[: blocks.matched(keys)]
        blocks.take(hits, len(keys) - len(hits))
        blocks.name(keys[len(hits) :])
        blocks.release(keys, 0, now)
        used_s.update(dict.fromkeys(keys, now))
        there = {key for key in used_s if blocks.matched([key])}
        assert there >= {key for key, at in used_s.items() if at > blocks.horizon_s}
        assert not [key for key in used_s.keys() - there if used_s[key] > blocks.horizon_s]


class NaiveLru:
    """An LRU cache as a list, with the most recently used key last."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.keys = capacity, list[str]()

    def store(self, prompt: Sequence[str]) -> None:
        kept = [key for key in prompt if key in self.keys]
        new = [key for key in prompt if key not in self.keys][: self.capacity - len(kept)]
        self.keys = [key for key in self.keys if key not in kept] + kept[::-1]
        del self.keys[: max(0, len(self.keys) + len(new) - self.capacity)]
        self.keys += new[::-1]
        present = [key for key in prompt if key in self.keys]
        self.keys = [key for key in self.keys if key not in present] + present[::-1]


PROMPTS = st.lists(st.tuples(st.sampled_from("pqrs"), st.integers(1, 6)), max_size=30)


@given(st.integers(0, 8), PROMPTS)
def test_the_cpu_tier_is_a_plain_lru_when_nothing_is_under_way(capacity: int, prompts: list[tuple[str, int]]) -> None:
    blocks, naive = CpuBlocks(capacity), NaiveLru(capacity)
    for prefix, length in prompts:
        prompt = [f"{prefix}{n}" for n in range(length)]
        blocks.complete_store(blocks.prepare_store(prompt))
        blocks.touch(prompt)
        naive.store(prompt)
        blocks.check()
        assert {key for key in ALL if blocks.matched([key])} == set(naive.keys)


@given(st.integers(0, 8), PROMPTS)
def test_what_was_used_after_the_horizon_is_still_in_cpu_memory(capacity: int, prompts: list[tuple[str, int]]) -> None:
    blocks, used_s = CpuBlocks(capacity), dict[str, float]()
    for now, (prefix, length) in enumerate(prompts):
        prompt = [f"{prefix}{n}" for n in range(length)]
        blocks.complete_store(blocks.prepare_store(prompt, now), now)
        blocks.touch(prompt, now)
        used_s.update(dict.fromkeys(prompt[: blocks.matched(prompt)], now))
        assert all(blocks.matched([key]) for key, at in used_s.items() if at > blocks.horizon_s)


ALL = [f"{prefix}{n}" for prefix in "pqrs" for n in range(6)]


def test_a_block_being_stored_cannot_be_loaded_yet() -> None:
    blocks = CpuBlocks(2)
    new = blocks.prepare_store([A, B])
    assert blocks.matched([A, B]) == 0
    blocks.complete_store(new)
    assert blocks.matched([A, B]) == 2


def test_a_block_being_loaded_is_not_evicted() -> None:
    blocks = CpuBlocks(2)
    blocks.complete_store(blocks.prepare_store([A, B]))
    blocks.pin([A])
    assert blocks.prepare_store([C, D]) == [C]
    assert blocks.matched([A]) == 1
    blocks.unpin([A])
    blocks.check()


def test_storing_a_longer_prompt_never_evicts_its_own_beginning() -> None:
    blocks = CpuBlocks(2)
    blocks.complete_store(blocks.prepare_store([A, B]))
    assert blocks.prepare_store([A, B, C]) == []
    assert blocks.matched([A, B]) == 2


def test_a_lane_carries_one_transfer_at_a_time() -> None:
    lane = Lane(bytes_per_s=8.0, latency_s=0.5)
    assert lane.reserve(8, now=0.0) == 1.5
    assert lane.reserve(8, now=1.0) == 3.0
    assert lane.reserve(8, now=10.0) == 11.5
