"""Runs that were cut in two become one again; that nothing else changes, the tests against the naive models say."""

from __future__ import annotations

from random import Random

import pytest

from scorers.base import Prompt, Slot
from scorers.index.index import PrefixIndex
from scorers.index.joining import MOST_RUNS
from scorers.index.snapshot import faults, restore
from scorers.index.snapshot_writer import Taking, taken

BLOCKS = 512


class Endpoints:
    """A document of BLOCKS blocks that every endpoint holds, and who asks for it."""

    def __init__(self, endpoints: int, flow_shares: tuple[float, ...] = ()) -> None:
        self.index = PrefixIndex(2, 1, bytes(32), flow_shares)
        self.slots = [Slot(number) for number in range(endpoints)]
        for slot in self.slots:
            for tier in range(2):
                self.index.set_capacity(slot, tier, 10 * BLOCKS)
        self.document = Random(1).randbytes(4 * BLOCKS)
        self.now = 0.0
        self.ask_everywhere()

    def ask(self, slot: Slot, blocks: int = BLOCKS) -> int:
        """How many runs the prompt was before."""
        self.now += 1.0
        match = self.index.match(Prompt(b"m", self.document[: 4 * blocks]))
        runs = len(match.walked.path)
        self.index.record(match, slot, now=self.now)
        return runs

    def ask_everywhere(self) -> int:
        return sum([self.ask(slot) for slot in self.slots])

    @property
    def runs(self) -> int:
        return len(list(self.index.root.descendants()))


@pytest.mark.parametrize("shares", [(), (1.0, 0.9)])
@pytest.mark.parametrize("endpoints", [1, 10])
def test_a_document_that_was_asked_for_at_every_length_is_a_few_runs_again(
    endpoints: int, shares: tuple[float, ...]
) -> None:
    picker = Endpoints(endpoints, shares)
    lengths = list(range(1, BLOCKS))
    Random(2).shuffle(lengths)
    for number, length in enumerate(lengths):
        picker.ask(picker.slots[number % endpoints], length)
    for _ in range(3):
        picker.ask_everywhere()
        picker.index.check_integrity()
    assert picker.runs <= MOST_RUNS
    assert picker.ask_everywhere() <= MOST_RUNS * endpoints


def test_prompts_that_grow_and_shrink_cut_no_more_than_the_order_of_use_needs() -> None:
    picker = Endpoints(1)
    for length in (*range(1, BLOCKS), *range(BLOCKS, 0, -1)):
        picker.ask(picker.slots[0], length)
    assert picker.runs == BLOCKS, "each block was used at another time, and is evicted at another"
    asked = 0
    while picker.runs > 1:  # a decision joins a few
        picker.ask(picker.slots[0])
        asked += 1
    assert asked <= 3


def test_a_short_path_is_left_as_it_is() -> None:
    """A place where prompts end again and again would be cut and joined in turn."""
    picker = Endpoints(3)
    for length in range(1, MOST_RUNS):
        picker.ask(picker.slots[0], length)
    picker.ask_everywhere()
    assert picker.runs == MOST_RUNS


def test_a_request_that_ended_where_runs_were_joined_is_still_known() -> None:
    picker = Endpoints(1)
    (slot,) = picker.slots
    flights = []
    for length in range(1, 2 * MOST_RUNS):
        last = picker.index.record(
            picker.index.match(Prompt(b"m", picker.document[: 4 * length])), slot, now=picker.now
        )
        assert last is not None
        flights.append((last, length))
    picker.ask(slot)
    assert picker.runs <= MOST_RUNS
    last, length = flights[4]
    picker.index.use_again(slot, last, length, picker.now + 1.0)
    picker.index.evict_unused(slot, 0, picker.now)
    picker.index.check_integrity()
    assert picker.index.match(Prompt(b"m", picker.document)).held[0] == {slot: length}


def test_runs_that_are_joined_while_a_snapshot_is_taken_are_told_as_they_were() -> None:
    picker = Endpoints(1)
    (slot,) = picker.slots
    for length in range(2 * MOST_RUNS, 0, -1):
        picker.ask(slot, length)
    tail = Prompt(b"m", picker.document + b"tail" * 3)
    for steps in range(2 * MOST_RUNS):
        taking = Taking(picker.index, picker.now)
        going = taking.steps("a", slot)
        for _ in range(steps):
            next(going, None)
        picker.index.record(picker.index.match(tail), slot, now=picker.now)
        for _ in going:
            pass
        snapshot = taking.snapshot()
        assert not list(faults(snapshot))
        other = PrefixIndex(2, 1, bytes(32))
        other.set_capacity(slot, 0, 10 * BLOCKS)
        other.set_capacity(slot, 1, 10 * BLOCKS)
        restore(other, slot, snapshot, "a")
        other.check_integrity()
        held = other.match(tail).held[0].get(slot, 0)
        assert other.tokens(slot, 0) == held, "nothing is restored that no prompt finds"
        for length in range(2 * MOST_RUNS, 0, -1):
            picker.ask(slot, length)


def test_what_is_taken_of_joined_runs_is_all_of_them() -> None:
    picker = Endpoints(2)
    for length in range(1, BLOCKS, 7):
        picker.ask(picker.slots[0], length)
    picker.ask_everywhere()
    assert taken(picker.index, {"a": picker.slots[0]}).blocks == BLOCKS
