"""Runs are joined once no prompt branches off between them; tests against naive models show that only this changes."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from scorers.base import Prompt, Slot
from scorers.index.index import PrefixIndex
from scorers.index.joining import MOST_RUNS
from scorers.index.snapshot import faults, restore
from scorers.index.snapshot_writer import SnapshotBuilder, taken

BLOCKS = 512
VISITOR = Slot(99)


class Endpoints:
    """A document of BLOCKS blocks, which every endpoint holds and receives at many lengths."""

    def __init__(self, endpoints: int, flow_shares: tuple[float, ...] = ()) -> None:
        self.index = PrefixIndex(2, 1, bytes(32), flow_shares)
        self.slots = [Slot(number) for number in range(endpoints)]
        for slot in self.slots:
            self.set_capacity(slot)
        self.document = Random(1).randbytes(4 * BLOCKS)
        self.now = 0.0
        self.send_everywhere()

    def set_capacity(self, slot: Slot) -> None:
        for tier in range(2):
            self.index.set_capacity(slot, tier, 10 * BLOCKS)

    def send(self, slot: Slot, blocks: int = BLOCKS) -> int:
        """Return how many runs the prompt was before."""
        self.now += 1.0
        match = self.index.match(Prompt(b"m", self.document[: 4 * blocks]))
        runs = len(match.walked.path)
        self.index.record(match, slot, now=self.now)
        return runs

    def send_everywhere(self) -> int:
        return sum([self.send(slot) for slot in self.slots])

    def cut(self, lengths: Iterable[int]) -> None:
        """Cut the document at ``lengths``: prompts branch off there at another endpoint, which is removed again."""
        self.set_capacity(VISITOR)
        for length in lengths:
            prompt = Prompt(b"m", self.document[: 4 * length] + b"question")
            self.index.record(self.index.match(prompt), VISITOR, now=self.now)
        self.index.remove_endpoint(VISITOR)

    @property
    def runs(self) -> int:
        return len(list(self.index.root.descendants()))


def shuffled_lengths() -> list[int]:
    lengths = list(range(1, BLOCKS))
    Random(2).shuffle(lengths)
    return lengths


@pytest.mark.parametrize("shares", [(), (1.0, 0.9)])
@pytest.mark.parametrize("endpoints", [1, 10])
def test_a_document_sent_at_every_length_stays_one_run(endpoints: int, shares: tuple[float, ...]) -> None:
    picker = Endpoints(endpoints, shares)
    for number, length in enumerate(shuffled_lengths()):
        picker.send(picker.slots[number % endpoints], length)
    picker.index.check_integrity()
    assert picker.runs == 1
    assert picker.index.match(Prompt(b"m", picker.document)).held[0] == dict.fromkeys(picker.slots, BLOCKS)


@pytest.mark.parametrize("shares", [(), (1.0, 0.9)])
@pytest.mark.parametrize("endpoints", [1, 10])
def test_a_document_that_prompts_left_at_every_block_is_a_few_runs_again_though_it_was_used_in_parts(
    endpoints: int, shares: tuple[float, ...]
) -> None:
    picker = Endpoints(endpoints, shares)
    picker.cut(shuffled_lengths())
    assert picker.runs == BLOCKS
    for number, length in enumerate(shuffled_lengths()[:100]):
        picker.send(picker.slots[number % endpoints], length)
    for _ in range(30):  # a decision joins a few
        picker.send(picker.slots[0])
    picker.index.check_integrity()
    assert picker.runs <= MOST_RUNS
    assert picker.index.match(Prompt(b"m", picker.document)).held[1] == dict.fromkeys(picker.slots, BLOCKS)


def test_prompts_that_grow_and_shrink_cut_nothing() -> None:
    picker = Endpoints(1)
    for length in (*range(1, BLOCKS), *range(BLOCKS, 0, -1)):
        picker.send(picker.slots[0], length)
    picker.index.check_integrity()
    assert picker.runs == 1
    assert len(list(picker.index.recency(picker.slots[0]) or ())) == BLOCKS, "each block was last used alone"
    picker.send(picker.slots[0])
    assert len(list(picker.index.recency(picker.slots[0]) or ())) == 1


def test_a_run_of_which_many_endpoints_hold_the_beginning_is_split_where_that_ends() -> None:
    picker = Endpoints(1)
    others = [Slot(number) for number in range(1, 100)]
    for slot in others:
        picker.set_capacity(slot)
        picker.send(slot, BLOCKS // 2)
    assert picker.runs == 2
    picker.index.check_integrity()
    held = picker.index.match(Prompt(b"m", picker.document)).held[0]
    assert held == {picker.slots[0]: BLOCKS} | dict.fromkeys(others, BLOCKS // 2)


def test_a_short_path_is_left_as_it_is() -> None:
    """A place where prompts branch off again and again would be cut and joined in turn."""
    picker = Endpoints(3)
    picker.cut(range(1, MOST_RUNS))
    picker.send_everywhere()
    assert picker.runs == MOST_RUNS


def test_a_request_that_ended_where_runs_were_joined_is_still_known() -> None:
    picker = Endpoints(1)
    (slot,) = picker.slots
    picker.cut(range(1, 2 * MOST_RUNS))
    recorded = []
    for length in range(1, 2 * MOST_RUNS):
        prompt = Prompt(b"m", picker.document[: 4 * length])
        last = picker.index.record(picker.index.match(prompt), slot, now=picker.now)
        assert last is not None
        recorded.append((last, length))
    picker.send(slot)
    assert picker.runs <= MOST_RUNS
    last, length = recorded[4]
    picker.index.use_again(slot, last, length, picker.now + 1.0)
    picker.index.evict_unused(slot, 0, picker.now)
    picker.index.check_integrity()
    assert picker.index.match(Prompt(b"m", picker.document)).held[0] == {slot: length}


def test_runs_that_are_joined_while_a_snapshot_is_taken_are_saved_as_they_were() -> None:
    picker = Endpoints(1)
    (slot,) = picker.slots
    tail = Prompt(b"m", picker.document + b"tail" * 3)
    for steps in range(2 * MOST_RUNS):
        picker.cut(range(1, 2 * MOST_RUNS))
        for length in range(2 * MOST_RUNS, 0, -1):
            picker.send(slot, length)
        builder = SnapshotBuilder(picker.index, picker.now)
        going = builder.steps("a", slot)
        for _ in range(steps):
            next(going, None)
        picker.index.record(picker.index.match(tail), slot, now=picker.now)
        for _ in going:
            pass
        snapshot = builder.snapshot()
        assert not list(faults(snapshot))
        other = PrefixIndex(2, 1, bytes(32))
        other.set_capacity(slot, 0, 10 * BLOCKS)
        other.set_capacity(slot, 1, 10 * BLOCKS)
        restore(other, slot, snapshot, "a")
        other.check_integrity()
        held = other.match(tail).held[0].get(slot, 0)
        assert other.tokens(slot, 0) == held, "nothing is restored that no prompt finds"


def test_a_snapshot_has_all_blocks_of_what_was_used_in_parts() -> None:
    picker = Endpoints(2)
    for length in range(1, BLOCKS, 7):
        picker.send(picker.slots[0], length)
    assert taken(picker.index, {"a": picker.slots[0]}).blocks == BLOCKS
    picker.send_everywhere()
    assert taken(picker.index, {"a": picker.slots[0]}).blocks == BLOCKS
