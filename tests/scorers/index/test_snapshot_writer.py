"""A snapshot is taken while requests continue."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scorers.base import Slot
from scorers.index.index import PrefixIndex
from scorers.index.snapshot import restore
from scorers.index.snapshot_writer import SnapshotBuilder
from tests.scorers.index.test_index import BLOCK, prompt
from tests.scorers.index.test_snapshot import stored

A, B = Slot(0), Slot(1)
SLOTS = {"a": A, "b": B}
Step: TypeAlias = tuple[str, str, int, Slot]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "take", "evict"]),
        st.text("ab", min_size=1, max_size=7),
        st.integers(1, 6),
        st.sampled_from([A, B]),
    ),
    min_size=5,
    max_size=60,
)


class Second:
    """A gate that admits what was offered before."""

    chunk_blocks = 1

    def __init__(self) -> None:
        self.seen: set[bytes] = set()

    def admit(self, chunks: Sequence[bytes]) -> int:
        admitted = next((number for number, chunk in enumerate(chunks) if chunk not in self.seen), len(chunks))
        self.seen |= set(chunks)
        return admitted


def made(flow_shares: tuple[float, ...], *, gated: bool, most_runs: int = 1) -> PrefixIndex:
    index = PrefixIndex(2, BLOCK, bytes(32), flow_shares, most_runs)
    for slot in (A, B):
        index.set_capacity(slot, 0, BLOCK * 10)
        index.set_capacity(slot, 1, BLOCK * 16)
        index.gate(slot, [1] if gated else [])
    return index


@pytest.mark.parametrize("flow_shares", [(), (0.5, 0.5)])
@pytest.mark.parametrize("gated", [False, True])
@settings(max_examples=150, deadline=None)
@given(steps=STEPS, most_runs=st.sampled_from([0, 1, 100]))
def test_a_snapshot_is_sound_and_has_only_what_was_held_whatever_happens_meanwhile(
    flow_shares: tuple[float, ...], gated: bool, steps: list[Step], most_runs: int
) -> None:
    index = made(flow_shares, gated=gated, most_runs=most_runs)
    gates = {slot: {1: Second()} if gated else {} for slot in (A, B)}
    builder = SnapshotBuilder(index, 100.0)
    under_way = chain.from_iterable(builder.steps(address, slot) for address, slot in SLOTS.items())
    ever: dict[Slot, set[str]] = {A: {""}, B: {""}}
    for now, (kind, sent, number, slot) in enumerate(steps):
        if kind == "send":
            index.record(index.match(prompt(sent)), slot, sent[0], float(now), gates[slot])
            ever[slot] |= {sent[:n] for n in range(len(sent) + 1)}
        elif kind == "evict":
            index.evict_unused(slot, 0, now - 5.0 * number)
        else:
            for _ in range(number):
                next(under_way, None)
        index.check_integrity()
    for _ in under_way:
        pass
    snapshot = stored(builder.snapshot())
    again = made(flow_shares, gated=gated)
    for address, slot in SLOTS.items():
        if address in snapshot.endpoints:
            restore(again, slot, snapshot, address)
            again.check_integrity()
    for slot in (A, B):
        for sent in ever[A] | ever[B]:
            deepest = max([held.get(slot, 0) // BLOCK for held in again.match(prompt(sent)).held])
            assert sent[:deepest] in ever[slot]


def test_an_endpoint_that_is_removed_while_it_is_saved_is_left_out() -> None:
    index = made((), gated=False)
    for sent in ("abc", "abd", "xyz"):
        index.record(index.match(prompt(sent)), A)
    builder = SnapshotBuilder(index, 0.0)
    steps = builder.steps("a", A)
    next(steps)
    index.remove_endpoint(A)
    assert list(steps) == []
    assert stored(builder.snapshot()).endpoints == {}


def test_what_a_tier_lost_before_it_was_read_is_not_saved() -> None:
    index = made((), gated=False)
    index.set_capacity(A, 0, BLOCK * 5)
    index.record(index.match(prompt("aaaaa")), A)
    builder = SnapshotBuilder(index, 0.0)
    steps = builder.steps("a", A)
    next(steps)
    index.record(index.match(prompt("bbb")), A)
    assert held(index, "aaaaa") == [2, 5]
    list(steps)
    again = made((), gated=False)
    restore(again, A, stored(builder.snapshot()), "a")
    assert held(again, "aaaaa") == [2, 5]


def test_what_is_used_again_meanwhile_adds_nothing_else() -> None:
    index = made((), gated=False)
    index.set_capacity(A, 0, BLOCK * 3)
    for sent in ("aaa", "bbb", "ccc"):
        index.record(index.match(prompt(sent)), A)
    builder = SnapshotBuilder(index, 0.0)
    steps = builder.steps("a", A)
    next(steps), next(steps)  # c is taken
    index.record(index.match(prompt("aaa")), A)
    assert held(index, "bbb") == [0, 3]
    list(steps)
    again = made((), gated=False)
    restore(again, A, stored(builder.snapshot()), "a")
    assert held(again, "bbb") == [0, 3]


@given(
    before=st.lists(st.tuples(st.text("ab", min_size=1, max_size=12), st.booleans()), min_size=1, max_size=20),
    meanwhile=st.lists(st.text("ab", min_size=1, max_size=12), max_size=40),
    most_runs=st.sampled_from([0, 1, 100]),
)
@settings(max_examples=200, deadline=None)
def test_what_other_endpoints_do_meanwhile_takes_nothing_from_a_snapshot(
    before: list[tuple[str, bool]], meanwhile: list[str], most_runs: int
) -> None:
    """Their prompts split and join the runs that the endpoint holds."""
    index = made((), gated=False, most_runs=most_runs)
    for now, (sent, to_other) in enumerate(before):
        index.record(index.match(prompt(sent)), B if to_other else A, now=float(now))
    builder = SnapshotBuilder(index, 100.0)
    for _, sent in zip(builder.steps("a", A), [*meanwhile, *["a"] * 100], strict=False):
        index.record(index.match(prompt(sent)), B, now=100.0)
    again = made((), gated=False)
    snapshot = stored(builder.snapshot())
    if "a" in snapshot.endpoints:
        restore(again, A, snapshot, "a")
    for sent in [sent for sent, _ in before]:
        assert held(again, sent) == held(index, sent)


def test_what_the_endpoint_used_again_with_more_is_saved_once_with_all_of_it() -> None:
    index = made((), gated=False)
    index.record(index.match(prompt("abcdef")), A, now=1.0)
    index.record(index.match(prompt("abc")), A, now=2.0)
    builder = SnapshotBuilder(index, 3.0)
    steps = builder.steps("a", A)
    next(steps), next(steps)  # abc is saved
    index.record(index.match(prompt("abcdef")), A, now=3.0)
    list(steps)
    again = made((), gated=False)
    restore(again, A, stored(builder.snapshot()), "a")
    assert held(again, "abcdef") == [6, 6]


def held(index: PrefixIndex, sent: str) -> list[int]:
    """Blocks of ``sent`` that ``A`` holds, by tier."""
    return [tokens.get(A, 0) // BLOCK for tokens in index.match(prompt(sent)).held]
