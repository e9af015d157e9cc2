"""A document that several endpoints are asked for at many lengths, against the naive model of single blocks."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from scorers.base import Prompt, Slot
from scorers.index.index import PrefixIndex
from scorers.index.snapshot import faults, restore
from scorers.index.snapshot_writer import taken
from scorers.index.tree import Node
from tests.scorers.index.naive_index import Key, NaiveIndex, NaiveTier

SLOTS = [Slot(0), Slot(1), Slot(4)]
TIERS = (0, 1)
BLOCKS = 40
STEPS = 120


class Document:
    """The index and the model, which receive the same requests for beginnings of one document."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.index = PrefixIndex(len(TIERS), 1, bytes(32), most_runs=random.choice([0, 1, 3]))
        self.naive = NaiveIndex(1)
        self.document = b"".join([bytes([block]) * 4 for block in range(BLOCKS)])
        self.now = 0.0
        self.recorded: list[tuple[Slot, Node, list[Key]]] = []
        for slot in SLOTS:
            for tier in TIERS:
                self.naive.tiers[slot, tier] = NaiveTier()
                self.set_capacity(slot, tier)

    def step(self) -> None:
        """Do one thing at random: most often, send a beginning of the document, sometimes with a question behind."""
        self.now += self.random.choice([0.0, 1.0])
        slot, tier = self.random.choice(SLOTS), self.random.choice(TIERS)
        naive = self.naive.tiers[slot, tier]
        match self.random.randrange(24):
            case 0:
                self.set_capacity(slot, tier)
            case 1:
                until_s = self.now - self.random.randrange(20)
                self.index.evict_unused(slot, tier, until_s)
                naive.evict_unused(until_s)
            case 2:
                blocks = self.random.randrange(BLOCKS)
                self.index.shorten(slot, tier, self.now - 5.0, blocks)
                naive.shorten(self.now - 5.0, blocks)
            case 3 | 4 if self.recorded:
                self.use_again(*self.random.choice(self.recorded[-8:]))
            case 5 | 6:
                self.send(slot, b"question" + bytes([self.random.randrange(3)]) * 4 * self.random.randrange(9))
            case _:
                self.send(slot)
        known = [self.index.match(Prompt(*keys[-1])).walked.depth == len(keys) for _, _, keys in self.recorded]
        self.recorded = [each for each, still in zip(self.recorded, known, strict=True) if still]

    def send(self, slot: Slot, question: bytes = b"") -> None:
        """Record a beginning of the document at ``slot``."""
        data = self.document[: 4 * self.random.randint(1, BLOCKS)] + question
        prompt = Prompt(b"m", data)
        keys = self.naive.keys(prompt, 1000)
        last = self.index.record(self.index.match(prompt), slot, now=self.now)
        if last is not None:
            self.recorded.append((slot, last, keys))
        for tier in TIERS:
            self.naive.tiers[slot, tier].record(keys, self.now)

    def use_again(self, slot: Slot, last: Node, keys: list[Key]) -> None:
        """Use again what is still held of a recorded prompt."""
        held = max([self.naive.tiers[slot, tier].depth(keys) for tier in TIERS])
        self.index.use_again(slot, last, len(keys), self.now)
        for tier in TIERS:
            self.naive.tiers[slot, tier].record(keys[:held], self.now)

    def set_capacity(self, slot: Slot, tier: int) -> None:
        """Give the tier another capacity, from nothing to more than the document."""
        tokens = self.random.randint(0, 60)
        self.index.set_capacity(slot, tier, tokens)
        self.naive.tiers[slot, tier].capacity = tokens
        self.naive.tiers[slot, tier].evict()

    def check(self, index: PrefixIndex) -> None:
        """Check that ``index`` holds exactly the blocks that the model holds."""
        index.check_integrity()
        for (slot, tier), naive in self.naive.tiers.items():
            assert index.tokens(slot, tier) == len(naive.blocks)
        for key in {key for naive in self.naive.tiers.values() for key in [*naive.blocks][::5]}:
            prompt = Prompt(*key)
            named = self.naive.keys(prompt, 1000)
            held = index.match(prompt).held
            for (slot, tier), naive in self.naive.tiers.items():
                assert held[tier].get(slot, 0) == naive.depth(named)

    def restarted(self) -> PrefixIndex:
        """Return a new index with what was saved of this one."""
        addresses = {str(slot): slot for slot in SLOTS}
        snapshot = taken(self.index, addresses, now=self.now)
        assert not list(faults(snapshot))
        again = PrefixIndex(len(TIERS), 1, bytes(32), most_runs=self.index.most_runs)
        for address, slot in addresses.items():
            for tier in TIERS:
                again.set_capacity(slot, tier, self.naive.tiers[slot, tier].capacity)
            if address in snapshot.endpoints:
                restore(again, slot, snapshot, address, self.now)
        return again


@given(st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_each_endpoint_holds_what_it_used_last_however_the_document_was_cut(seed: int) -> None:
    document = Document(Random(seed))
    for _ in range(STEPS):
        document.step()
        document.check(document.index)
    document.check(document.restarted())


def test_a_prompt_that_ends_within_a_run_of_a_long_path_cuts_no_other_endpoints_run() -> None:
    index = PrefixIndex(1, 1, bytes(32), most_runs=2)
    document = Random(1).randbytes(4 * BLOCKS)
    for slot in SLOTS:
        index.set_capacity(slot, 0, 10 * BLOCKS)
        index.record(index.match(Prompt(b"m", document)), slot, now=0.0)
    lengths = list(range(1, BLOCKS))
    Random(2).shuffle(lengths)
    for number, length in enumerate(lengths):
        slot = SLOTS[number % len(SLOTS)]
        index.record(index.match(Prompt(b"m", document[: 4 * length])), slot, now=1.0 + number)
        index.check_integrity()
    assert len(list(index.root.descendants())) <= 3
    assert index.match(Prompt(b"m", document)).held[0] == dict.fromkeys(SLOTS, BLOCKS)


def test_what_was_sent_in_vain_is_taken_back_within_a_run_and_no_further_than_others_used_it() -> None:
    index = PrefixIndex(1, 1, bytes(32), most_runs=0)
    document = Random(1).randbytes(4 * BLOCKS)
    whole, half, quarter = [Prompt(b"m", document[: 4 * BLOCKS // part]) for part in (1, 2, 4)]
    (slot, *_) = SLOTS
    index.set_capacity(slot, 0, BLOCKS)
    last = index.record(index.match(whole), slot, now=1.0)
    assert last is not None
    index.record(index.match(half), slot, now=2.0)
    index.take_back(slot, last, BLOCKS, BLOCKS // 4, 1.0)
    index.check_integrity()
    assert index.match(whole).held[0] == {slot: BLOCKS // 2}, "the half was used since"
    index.take_back(slot, last, BLOCKS // 2, BLOCKS // 4, 2.0)
    index.check_integrity()
    assert index.match(whole).held[0] == {slot: BLOCKS // 4}
    assert index.match(quarter).held[0] == {slot: BLOCKS // 4}
