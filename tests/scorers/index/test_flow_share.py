"""What one flow may hold of an endpoint: examples, and the index against a naive model of single blocks."""

from __future__ import annotations

from collections import OrderedDict

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from scorers.base import Candidate, Prompt, Request, Slot
from scorers.index.flow_share import FlowRecency
from scorers.index.index import BYTES_PER_TOKEN, PrefixIndex
from scorers.prefix.cache import PrefixCache
from scorers.prefix.parameters import ApproxPrefixParameters
from scorers.prefix.producer import ApproxPrefixProducer

A, B = Slot(0), Slot(1)
STEP = BYTES_PER_TOKEN


def prompt(blocks: str, identity: bytes = b"m") -> Prompt:
    """One letter is one block of one token."""
    return Prompt(identity, b"".join(letter.encode() * STEP for letter in blocks))


class Bounded:
    """An index of one tier with blocks of one token, checked at every step."""

    def __init__(self, capacity: int, share: float) -> None:
        self.index = PrefixIndex(1, 1, bytes(32), [share])
        for slot in (A, B):
            self.index.set_capacity(slot, 0, capacity)

    def send(self, flow: str, blocks: str, slot: Slot = A) -> None:
        self.index.record(self.index.match(prompt(blocks)), slot, flow)
        self.index.check_integrity()

    def held(self, blocks: str, slot: Slot = A) -> int:
        return self.index.match(prompt(blocks)).held[0].get(slot, 0)


def test_one_flow_cannot_fill_an_endpoint() -> None:
    bounded = Bounded(10, 0.5)
    bounded.send("quiet", "abc")
    for start in "defghijk":
        bounded.send("loud", start + "123")
    assert bounded.held("abc") == 3
    assert [bounded.held(start + "123") for start in "ijk"] == [0, 1, 4]
    assert bounded.index.tokens(A, 0) == 8
    assert bounded.index.over_share_tokens == 27


def test_without_a_bound_it_can() -> None:
    index = PrefixIndex(1, 1, bytes(32))
    index.set_capacity(A, 0, 10)
    for flow, blocks in (("quiet", "abc"), *(("loud", start + "123") for start in "defghijk")):
        index.record(index.match(prompt(blocks)), A, flow)
    assert index.match(prompt("abc")).held[0] == {}
    assert not any(isinstance(recency, FlowRecency) for recency in index._endpoints.values())


def test_a_prompt_longer_than_the_share_is_held_as_far_as_it_goes() -> None:
    bounded = Bounded(10, 0.3)
    bounded.send("loud", "abcdefgh")
    assert bounded.held("abcdefgh") == 3


def test_each_endpoint_and_each_flow_has_a_share_of_its_own() -> None:
    bounded = Bounded(4, 0.5)
    for slot in (A, B):
        bounded.send("x", "abc", slot)
        bounded.send("y", "uvw", slot)
    assert [bounded.held(blocks, slot) for slot in (A, B) for blocks in ("abc", "uvw")] == [2, 2, 2, 2]


def test_what_another_flow_continues_from_stays_and_is_charged_to_no_flow() -> None:
    bounded = Bounded(10, 0.4)
    bounded.send("x", "abc")
    bounded.send("y", "abcd")
    bounded.send("x", "ab")  # x pays for a and b, y for c and d
    bounded.send("x", "1234")
    assert bounded.held("abcd") == 4, "x was four blocks over its share of two, and none of them was the end of one"
    bounded.send("x", "567")
    assert [bounded.held(blocks) for blocks in ("abcd", "1234", "567")] == [4, 1, 3]


def test_a_smaller_capacity_bounds_every_flow_anew() -> None:
    bounded = Bounded(10, 0.5)
    bounded.send("x", "abcde")
    bounded.send("y", "vwxyz")
    bounded.index.set_capacity(A, 0, 6)
    bounded.index.check_integrity()
    assert (bounded.held("abcde"), bounded.held("vwxyz")) == (3, 3)


def test_shares_can_change_while_there_are_bounds() -> None:
    bounded = Bounded(10, 0.5)
    bounded.send("x", "abcde")
    assert bounded.index.set_flow_shares([0.2])
    bounded.index.check_integrity()
    assert bounded.held("abcde") == 2
    assert not bounded.index.set_flow_shares([])
    assert not PrefixIndex(1, 1).set_flow_shares([0.5])


def test_flows_that_hold_nothing_are_forgotten() -> None:
    bounded = Bounded(4, 0.5)
    for n in range(200):
        bounded.send(f"flow {n}", f"{chr(200 + n)}b")
    (recency,) = [r for r in bounded.index._endpoints.values() if r.slot == A]
    assert isinstance(recency, FlowRecency)
    assert len(recency._flows) == 2


def test_the_cache_charges_the_fairness_id() -> None:
    parameters = {"autoTune": False, "lruCapacityPerServer": 8, "blockSizeTokens": 1, "maxShareByFairnessId": 0.25}
    producer = ApproxPrefixProducer(msgspec.convert(parameters, ApproxPrefixParameters), "gpu")
    cache = PrefixCache([producer], block_tokens=1)
    endpoint = Candidate(A, "10.0.0.1:8000")
    for fairness_id, blocks in (("x", "abcd"), ("y", "wxyz")):
        request = Request(
            id="r", model="m", target_model="m", prompts=(prompt(blocks),), fairness_id=fairness_id, cached={}
        )
        producer.produce(request, [endpoint])
        producer.picked(request, endpoint)
    assert cache.used_tokens(A, "gpu") == 4


def with_share(share: float) -> ApproxPrefixProducer:
    written = {"autoTune": False, "lruCapacityPerServer": 8, "blockSizeTokens": 1, "maxShareByFairnessId": share}
    return ApproxPrefixProducer(msgspec.convert(written, ApproxPrefixParameters), "gpu")


def test_a_changed_share_keeps_what_is_known_unless_bounds_come_or_go() -> None:
    endpoint = Candidate(A, "10.0.0.1:8000")
    cache = PrefixCache([with_share(0.5)], block_tokens=1)
    cache.endpoint_added(endpoint)
    cache.index.record(cache.index.match(prompt("abcd")), A, "x")
    assert cache.used_tokens(A, "gpu") == 4
    assert cache.take_over([with_share(0.25)], [endpoint])
    cache.index.check_integrity()
    assert cache.used_tokens(A, "gpu") == 2
    assert not cache.take_over([with_share(1.0)], [endpoint])
    assert not PrefixCache([with_share(1.0)], block_tokens=1).take_over([with_share(0.5)], [])


def test_a_share_out_of_range_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"maxShareByFairnessId is 1\.5; it must be from 0 to 1"):
        msgspec.convert({"maxShareByFairnessId": 1.5}, ApproxPrefixParameters)


# The model

SLOTS = [Slot(0), Slot(3)]
SHARES = (0.5, 0.25)

Key = tuple[bytes, bytes]


class NaiveEndpoint:
    """Two tiers of single blocks, each least recently used first, and the flow that each block is charged to."""

    def __init__(self) -> None:
        self.capacities = [0, 0]
        self.tiers: list[OrderedDict[Key, None]] = [OrderedDict(), OrderedDict()]
        self.payers: OrderedDict[Key, str | None] = OrderedDict()  # in any tier, oldest first

    def record(self, keys: list[Key], flow: str) -> None:
        if not max(self.capacities):
            return
        for key in reversed(keys):
            for tier in self.tiers:
                tier[key] = None
                tier.move_to_end(key)
            self.payers[key] = flow
            self.payers.move_to_end(key)
        self.settle()

    def settle(self) -> None:
        bound = max(int(round(c * share, 6)) for c, share in zip(self.capacities, SHARES, strict=True))
        for flow in sorted({flow for flow in self.payers.values() if flow is not None}):
            while list(self.payers.values()).count(flow) > bound:
                oldest = next(key for key, payer in self.payers.items() if payer == flow)
                if any(self.follows(key, oldest) for key in self.payers):
                    self.payers[oldest] = None
                else:
                    self.remove(oldest)
        for tier, capacity in zip(self.tiers, self.capacities, strict=True):
            while len(tier) > capacity:
                tier.popitem(last=False)
        for key in [key for key in self.payers if not any(key in tier for tier in self.tiers)]:
            self.remove(key)

    def remove(self, key: Key) -> None:
        del self.payers[key]
        for tier in self.tiers:
            tier.pop(key, None)

    @staticmethod
    def follows(key: Key, before: Key) -> bool:
        return key[0] == before[0] and len(key[1]) > len(before[1]) and key[1].startswith(before[1])


blocks = st.lists(st.sampled_from("ab"), max_size=8).map("".join)
slots = st.sampled_from(SLOTS)
flows = st.sampled_from(["x", "y", "z"])


class AgainstTheModel(RuleBasedStateMachine):
    @initialize(most_runs=st.sampled_from([0, 1, 100]))
    def begin(self, most_runs: int) -> None:
        self.index = PrefixIndex(2, 1, bytes(32), SHARES, most_runs)
        self.naive: dict[Slot, NaiveEndpoint] = {}
        self.set_capacity(SLOTS[0], 0, 8)
        self.set_capacity(SLOTS[0], 1, 20)

    @rule(slot=slots, tier=st.integers(0, 1), capacity=st.integers(0, 30))
    def set_capacity(self, slot: Slot, tier: int, capacity: int) -> None:
        self.index.set_capacity(slot, tier, capacity)
        naive = self.naive.setdefault(slot, NaiveEndpoint())
        naive.capacities[tier] = capacity
        naive.settle()

    @rule(slot=slots)
    def remove_endpoint(self, slot: Slot) -> None:
        self.index.remove_endpoint(slot)
        self.naive.pop(slot, None)

    @rule(drawn=blocks, slot=slots, flow=flows, identity=st.sampled_from([b"", b"salt"]))
    def record(self, drawn: str, slot: Slot, flow: str, identity: bytes) -> None:
        sent = prompt(drawn, identity)
        self.index.record(self.index.match(sent), slot, flow)
        if slot in self.naive:
            keys = [(identity, sent.data[: (n + 1) * STEP]) for n in range(len(drawn))]
            self.naive[slot].record(keys, flow)

    @invariant()
    def every_block_and_every_charge_is_where_the_model_has_it(self) -> None:
        for slot, naive in self.naive.items():
            for tier in range(2):
                assert self.index.tokens(slot, tier) == len(naive.tiers[tier])
                for identity, data in naive.tiers[tier]:
                    match = self.index.match(Prompt(identity, data))
                    assert match.held[tier].get(slot) == match.total_tokens
            recency = self.index._endpoints[slot]
            assert isinstance(recency, FlowRecency)
            for flow in "xyz":
                assert recency.held_by(flow) == list(naive.payers.values()).count(flow)

    @invariant()
    def the_index_is_sound(self) -> None:
        self.index.check_integrity()

    def teardown(self) -> None:
        for slot in SLOTS:
            self.index.remove_endpoint(slot)
        self.index.check_integrity()
        assert self.index.is_empty


AgainstTheModel.TestCase.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)
TestAgainstTheModel = AgainstTheModel.TestCase


@given(
    st.lists(st.tuples(flows, blocks), max_size=30),
    st.integers(0, 20),
    st.floats(0, 1),
)
@settings(max_examples=100, deadline=None)
def test_no_flow_ever_holds_more_than_its_share(sent: list[tuple[str, str]], capacity: int, share: float) -> None:
    bounded = Bounded(capacity, share)
    for flow, drawn in sent:
        bounded.send(flow, drawn)
        recency = bounded.index._endpoints[A]
        assert isinstance(recency, FlowRecency)
        assert all(recency.held_by(each) <= share * capacity + 1e-6 for each in "xyz")
