"""The index against a naive model: for each endpoint and tier an ordered dict of single blocks."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from scorers.base import Prompt, Slot
from scorers.index.index import BYTES_PER_TOKEN, PrefixIndex
from scorers.index.tree import Node
from tests.scorers.index.naive_index import Key, NaiveIndex, NaiveTier

SLOTS = [Slot(n) for n in (0, 1, 5)]
TIERS = (0, 1, 2)


# Few different blocks, so that prompts share prefixes at every alignment; tails that fill no block.
prompts = st.builds(
    lambda identity, blocks, tail: (identity, blocks, tail),
    st.sampled_from([b"", b"salt"]),
    st.lists(st.sampled_from("ab"), max_size=9).map("".join),
    st.integers(0, 1),
)
limits = st.integers(0, 24) | st.just(10**9)
slots = st.sampled_from(SLOTS)
tiers = st.sampled_from(TIERS)
capacities = st.integers(0, 30) | st.just(10**30)


class OneByOne:
    """A gate that admits a fixed number of blocks."""

    chunk_blocks = 1

    def __init__(self, admitted: int) -> None:
        self.admitted = admitted

    def admit(self, chunks: Sequence[bytes]) -> int:
        return min(self.admitted, len(chunks))


class AgainstTheModel(RuleBasedStateMachine):
    @initialize(block_tokens=st.sampled_from([1, 2, 3]), most_runs=st.sampled_from([0, 1, 100]))
    def begin(self, block_tokens: int, most_runs: int) -> None:
        self.index = PrefixIndex(len(TIERS), block_tokens, bytes(32), most_runs=most_runs)
        self.naive = NaiveIndex(block_tokens)
        self.now = 0.0
        self.flights: list[tuple[Slot, Node, int, list[Key]]] = []
        for slot in SLOTS[:2]:
            for tier in TIERS:
                self.set_capacity(slot, tier, 8 * (tier + 1))

    def prompt(self, drawn: tuple[bytes, str, int]) -> Prompt:
        identity, blocks, tail = drawn
        data = b"".join(letter.encode() * self.naive.block_bytes for letter in blocks)
        return Prompt(identity, data + b"t" * (tail * (self.naive.block_bytes - 1)))

    @rule(slot=slots, tier=tiers, tokens=capacities)
    def set_capacity(self, slot: Slot, tier: int, tokens: int) -> None:
        self.index.set_capacity(slot, tier, tokens)
        for each in TIERS:  # without a capacity it is 0
            self.naive.tiers.setdefault((slot, each), NaiveTier())
        naive = self.naive.tiers[slot, tier]
        naive.capacity = tokens // self.index.block_tokens
        naive.evict()

    @rule(slot=slots)
    def remove_endpoint(self, slot: Slot) -> None:
        self.index.remove_endpoint(slot)
        for tier in TIERS:
            self.naive.tiers.pop((slot, tier), None)
        self.flights = [flight for flight in self.flights if flight[0] != slot]

    @rule(drawn=prompts, limit=limits, slot=slots, passes_s=st.sampled_from([0.0, 1.0]), more=st.integers(0, 9))
    def record(self, drawn: tuple[bytes, str, int], limit: int, slot: Slot, passes_s: float, more: int) -> None:
        prompt = self.prompt(drawn)
        self.now += passes_s
        keys = self.naive.keys(prompt, limit)
        gated = {n: self.naive.tiers[slot, n] for n in TIERS if (slot, n) in self.naive.tiers}
        admitted = {n: naive.depth(keys) + more for n, naive in gated.items() if naive.gated and more < 5}
        gates = {n: OneByOne(more) for n in admitted}
        last = self.index.record(self.index.match(prompt, limit), slot, "", self.now, gates)
        if last is not None:
            self.flights.append((slot, last, len(keys), keys))
            self.note(prompt, limit, slot, admitted)

    @rule(slot=slots, tier=tiers, ago_s=st.integers(0, 6))
    def evict_unused(self, slot: Slot, tier: int, ago_s: int) -> None:
        self.index.evict_unused(slot, tier, self.now - ago_s)
        if naive := self.naive.tiers.get((slot, tier)):
            naive.evict_unused(self.now - ago_s)

    @rule(slot=slots, tier=tiers, ago_s=st.integers(0, 6), blocks=st.integers(0, 4))
    def shorten(self, slot: Slot, tier: int, ago_s: int, blocks: int) -> None:
        self.index.shorten(slot, tier, self.now - ago_s, blocks * self.index.block_tokens)
        if naive := self.naive.tiers.get((slot, tier)):
            naive.shorten(self.now - ago_s, blocks)

    @rule(number=st.integers(0, 20), passes_s=st.sampled_from([0.0, 1.0]))
    def use_again(self, number: int, passes_s: float) -> None:
        if number >= len(self.flights):
            return
        slot, last, blocks, keys = self.flights[number]
        held = max(self.naive.tiers[slot, tier].depth(keys) for tier in TIERS)
        self.now += passes_s
        self.index.use_again(slot, last, blocks, self.now)
        for tier in TIERS:
            naive = self.naive.tiers[slot, tier]
            naive.record(keys[: naive.depth(keys) if naive.gated else held], self.now)

    @rule(number=st.integers(0, 20), before=st.integers(0, 9), ago_s=st.integers(-1, 6))
    def take_back(self, number: int, before: int, ago_s: int) -> None:
        if number >= len(self.flights):
            return
        slot, last, blocks, keys = self.flights[number]
        self.index.take_back(slot, last, blocks, before, self.now - ago_s)
        tiers = [self.naive.tiers[slot, tier] for tier in TIERS]
        for key in reversed(keys[before:]):
            used_s = [naive.blocks[key] for naive in tiers if key in naive.blocks]
            if any(naive.continues(key) for naive in tiers) or max(used_s, default=-1.0) > self.now - ago_s:
                break
            for naive in tiers:
                naive.blocks.pop(key, None)

    @rule(slot=slots, gated=st.sets(tiers))
    def gate(self, slot: Slot, gated: set[int]) -> None:
        if slot not in self.index:
            return
        self.index.gate(slot, gated)
        for tier in TIERS:
            naive = self.naive.tiers[slot, tier]
            if naive.gated and tier not in gated:
                naive.blocks.clear()
            naive.gated = tier in gated

    @rule(first=prompts, second=prompts, limit=limits, slot=slots, other=slots)
    def record_what_was_matched_before_another(
        self, first: tuple[bytes, str, int], second: tuple[bytes, str, int], limit: int, slot: Slot, other: Slot
    ) -> None:
        matches = [self.index.match(self.prompt(drawn), limit) for drawn in (first, second)]
        if any(naive.gated for naive in self.naive.tiers.values()):
            return
        for match, to in zip(matches, (slot, other), strict=True):
            self.index.record(match, to, now=self.now)
            self.note(match.prompt, limit, to, {})

    def note(self, prompt: Prompt, limit: int, slot: Slot, admitted: dict[int, int]) -> None:
        for tier in TIERS:
            if naive := self.naive.tiers.get((slot, tier)):
                naive.record(self.naive.keys(prompt, limit)[: admitted.get(tier)], self.now)

    @rule(drawn=prompts, limit=limits)
    def match(self, drawn: tuple[bytes, str, int], limit: int) -> None:
        prompt = self.prompt(drawn)
        match = self.index.match(prompt, limit)
        keys = self.naive.keys(prompt, limit)
        assert match.total_tokens == len(keys) * self.index.block_tokens
        for tier in TIERS:
            depths = {slot: naive.depth(keys) for (slot, which), naive in self.naive.tiers.items() if which == tier}
            assert match.held[tier] == {
                slot: depth * self.index.block_tokens for slot, depth in depths.items() if depth
            }

    @invariant()
    def forget_flights(self) -> None:
        """The place in the tree of what has no holder is forgotten: none of that is used again or taken back."""
        known = [self.index.match(Prompt(*keys[-1])).walked.depth == len(keys) for *_, keys in self.flights]
        self.flights = [flight for flight, still in zip(self.flights, known, strict=True) if still]

    @invariant()
    def every_block_is_where_the_model_has_it(self) -> None:
        for (slot, tier), naive in self.naive.tiers.items():
            assert self.index.tokens(slot, tier) == len(naive.blocks) * self.index.block_tokens
            for identity, data in naive.blocks:
                match = self.index.match(Prompt(identity, data))
                assert match.held[tier].get(slot) == match.total_tokens

    @invariant()
    def the_index_is_sound(self) -> None:
        self.index.check_integrity()

    def teardown(self) -> None:
        for slot in SLOTS:
            self.index.remove_endpoint(slot)
        self.index.check_integrity()
        assert self.index.statistics()[:3] == (0, 0, 0)
        assert self.index.is_empty


AgainstTheModel.TestCase.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)
TestAgainstTheModel = AgainstTheModel.TestCase


@given(data=st.binary(max_size=400), cut=st.integers(0, 400), block_tokens=st.integers(1, 20))
@settings(max_examples=200, deadline=None)
def test_a_prompt_is_known_exactly_as_far_as_its_bytes_are_equal(data: bytes, cut: int, block_tokens: int) -> None:
    """Any change of a byte ends the match at the block it is in."""
    index = PrefixIndex(block_tokens=block_tokens)
    index.set_capacity(Slot(0), 0, 10**6)
    index.record(index.match(Prompt(b"", data)), Slot(0))
    step = block_tokens * BYTES_PER_TOKEN
    if cut < len(data):
        other = data[:cut] + bytes([data[cut] ^ 1]) + data[cut + 1 :]
        expected = cut // step
    else:
        other, expected = data, len(data) // step
    expected = min(expected, len(data) // step)
    assert index.match(Prompt(b"", other)).held[0].get(Slot(0), 0) == expected * block_tokens
