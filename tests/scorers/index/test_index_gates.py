"""Tiers that admit a prompt later than others, whose runs are evicted in part meanwhile, against the naive model."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from scorers.base import Prompt, Slot
from scorers.index.index import PrefixIndex
from scorers.index.tree import Node
from scorers.prefix.admission import ComputeCounts
from tests.scorers.index.naive_index import Key, NaiveIndex, NaiveTier

ONE, OTHER = Slot(0), Slot(1)
GPU, CPU = 0, 1
TIERS = (GPU, CPU)
USES = 300


def prompt_of(blocks: str) -> Prompt:
    return Prompt(b"m", b"".join(letter.encode() * 4 for letter in blocks))


class Pair:
    """The index and the model. ONE has a CPU tier that admits whole chunks when they are computed again; OTHER's admits
    everything. Prompts are longer than half of a tier, so that runs are evicted in part as a rule."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.index = PrefixIndex(len(TIERS), 1, bytes(32), most_runs=random.choice([0, 1, 3]))
        self.naive = NaiveIndex(1)
        self.now = 0.0
        self.flights: list[tuple[Slot, Node, list[Key]]] = []
        for slot in (ONE, OTHER):
            for tier in TIERS:
                self.naive.tiers[slot, tier] = NaiveTier()
                self.set_capacity(slot, tier)
        self.index.gate(ONE, [CPU])
        store_after, chunk_blocks = random.randint(1, 3), random.randint(1, 4)
        self.gate, self.naive_gate = ComputeCounts(store_after, chunk_blocks), ComputeCounts(store_after, chunk_blocks)

    def step(self) -> None:
        self.now += 1.0
        slot, tier = self.random.choice([ONE, ONE, OTHER]), self.random.choice(TIERS)
        match self.random.randrange(20):
            case 0:
                self.set_capacity(slot, tier)
            case 1:
                until_s = self.now - self.random.randrange(9)
                self.index.evict_unused(slot, tier, until_s)
                self.naive.tiers[slot, tier].evict_unused(until_s)
            case 2 | 3 if self.flights:
                self.use_again(*self.random.choice(self.flights[-5:]))
            case _:
                self.record(slot)
        # The place in the tree of what has no holder anymore is forgotten.
        whole = [self.index.match(Prompt(*keys[-1])).walked.depth == len(keys) for _, _, keys in self.flights]
        self.flights = [flight for flight, known in zip(self.flights, whole, strict=True) if known]

    def record(self, slot: Slot) -> None:
        prompt = prompt_of("".join(self.random.choices("ab", k=self.random.randint(1, 9))))
        keys = self.naive.keys(prompt, 1000)
        gates = {CPU: self.gate} if slot == ONE else {}
        last = self.index.record(self.index.match(prompt), slot, "", self.now, gates)
        if last is None:
            return
        self.flights.append((slot, last, keys))
        limits = {CPU: self.admitted(keys)} if slot == ONE else {}
        for tier in TIERS:
            self.naive.tiers[slot, tier].record(keys[: limits.get(tier)], self.now)

    def admitted(self, keys: list[Key]) -> int:
        """Blocks that the gated tier holds of a prompt that is computed now."""
        held, step = self.naive.tiers[ONE, CPU].depth(keys), self.naive_gate.chunk_blocks
        whole = held // step * step
        chunks = [keys[end - 1][1] for end in range(whole + step, len(keys) + 1, step)]
        return max(held, whole + self.naive_gate.admit(chunks) * step)

    def use_again(self, slot: Slot, last: Node, keys: list[Key]) -> None:
        held = max(self.naive.tiers[slot, tier].depth(keys) for tier in TIERS)
        self.index.use_again(slot, last, len(keys), self.now)
        for tier in TIERS:
            naive = self.naive.tiers[slot, tier]
            naive.record(keys[: naive.depth(keys) if (slot, tier) == (ONE, CPU) else held], self.now)

    def set_capacity(self, slot: Slot, tier: int) -> None:
        tokens = self.random.randint(0, 14)
        self.index.set_capacity(slot, tier, tokens)
        self.naive.tiers[slot, tier].capacity = tokens
        self.naive.tiers[slot, tier].evict()

    def check(self) -> None:
        self.index.check_integrity()
        for (slot, tier), naive in self.naive.tiers.items():
            assert self.index.tokens(slot, tier) == len(naive.blocks)
            for identity, data in naive.blocks:
                match = self.index.match(Prompt(identity, data))
                assert match.held[tier].get(slot) == match.total_tokens


@given(st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_a_tier_that_admits_late_holds_what_the_model_holds(seed: int) -> None:
    """Many uses of one index, since it takes a run that one tier alone held, and in part, to go wrong."""
    pair = Pair(Random(seed))
    for _ in range(USES):
        pair.step()
        pair.check()


def test_what_was_just_sent_is_known_where_a_tier_admits_late_and_the_run_was_evicted_in_part() -> None:
    index = PrefixIndex(2, 1, b"x" * 32)
    index.set_capacity(ONE, GPU, 11)
    index.gate(ONE, [CPU])
    gates = {CPU: ComputeCounts(3, 4)}
    for at, blocks in enumerate(("bbabaaa", "bbabab", "aaabbbb", "bbaba")):
        index.record(index.match(prompt_of(blocks)), ONE, "", float(at), gates)
        index.check_integrity()
    assert index.match(prompt_of("bbaba")).held[GPU] == {ONE: 5}
