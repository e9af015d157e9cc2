"""One index behind several producers: what a decision reads from it, and what a pick adds."""

from __future__ import annotations

import json
import logging

import msgspec
import pytest

from epp.parsers.openai import OpenAIParser
from scorers.base import Candidate, Prompt, Request, Slot, Tier
from scorers.index.index import PrefixIndex
from scorers.index.match import Match
from scorers.prefix.cache import PrefixCache
from scorers.prefix.parameters import ApproxPrefixParameters
from scorers.prefix.producer import ApproxPrefixProducer
from scorers.prefix.scorer import PrefixScorer

BLOCK = 4


def candidate(slot: int, gpu_blocks: int | None = None) -> Candidate:
    return Candidate(Slot(slot), f"10.0.0.{slot}:8000", gpu_blocks=gpu_blocks, block_tokens=16 if gpu_blocks else None)


def producer(name: str, **parameters: object) -> ApproxPrefixProducer:
    return ApproxPrefixProducer(msgspec.convert(parameters, ApproxPrefixParameters), name)


def request(*prompts: str, identity: bytes = b"m") -> Request:
    """Return a request for ``texts``, in which one letter is one block."""
    made = tuple(Prompt(identity, "".join(c * BLOCK * 4 for c in blocks).encode()) for blocks in prompts)
    return Request(id="r", model="m", target_model="m", prompts=made)


class CountingIndex(PrefixIndex):
    """A hasher that counts its passes over data."""

    passes = 0

    def match(self, prompt: Prompt, limit_tokens: int = 1 << 60) -> Match:
        self.passes += 1
        return super().match(prompt, limit_tokens)


class Picker:
    """A prefix cache, its producers and some endpoints."""

    def __init__(self, *producers: ApproxPrefixProducer, endpoints: int = 3) -> None:
        self.producers = producers or (producer("gpu"), producer("cpu", lruCapacityPerServer=1000))
        self.cache = PrefixCache(self.producers, block_tokens=BLOCK)
        self.endpoints = [candidate(n) for n in range(endpoints)]
        for endpoint in self.endpoints:
            self.cache.endpoint_added(endpoint)

    def look(self, asked: Request) -> Request:
        for each in self.producers:
            each.produce(asked, self.endpoints)
        return asked

    def send(self, asked: Request, slot: int) -> Request:
        self.look(asked)
        for each in self.producers:
            each.picked(asked, self.endpoints[slot])
        self.cache.index.check_integrity()
        return asked

    def held(self, *prompts: str, name: str = "gpu") -> dict[Slot, int]:
        return dict(self.look(request(*prompts)).cached[name].tokens)


def test_each_producer_writes_what_its_tier_holds_under_its_own_name() -> None:
    picker = Picker(producer("gpu", lruCapacityPerServer=1), producer("cpu", lruCapacityPerServer=2))
    picker.send(request("abcdefghij"), 0)
    cached = picker.look(request("abcdefghij")).cached
    assert {name: (c.tier, c.total_tokens, c.tokens) for name, c in cached.items()} == {
        "gpu": (Tier.GPU, 40, {0: 16}),
        "cpu": (Tier.CPU, 40, {0: 32}),
    }


def test_a_request_sent_again_scores_1_where_it_went() -> None:
    picker = Picker()
    picker.send(request("abc"), 1)
    again = picker.look(request("abc"))
    assert PrefixScorer(name="gpu").score(again, picker.endpoints) == [0.0, 1.0, 0.0]


def test_a_prompt_is_hashed_once_whatever_the_number_of_tiers() -> None:
    picker = Picker(*[producer(f"p{n}") for n in range(5)])
    picker.cache.index = index = CountingIndex(5, BLOCK)
    for endpoint in picker.endpoints:
        picker.cache.endpoint_added(endpoint)
        picker.cache.index.set_capacity(endpoint.slot, 0, 1000)
    picker.send(request("abc"), 0)
    assert index.passes == 1


def test_of_a_request_of_many_prompts_a_bounded_number_is_matched_and_recorded() -> None:
    body = {"model": "m", "prompt": [f"{number:<64}" for number in range(1_000)]}
    for path in ("/v1/completions", "/v1/embeddings"):
        parsed = OpenAIParser().parse(path, json.dumps(body | {"input": body["prompt"]}).encode())
        picker = Picker()
        picker.cache.index = index = CountingIndex(2, BLOCK)
        picker.send(Request(id="r", model="m", target_model="m", prompts=parsed.prompts), 0)
        assert (index.passes, index.statistics().blocks) == (32, 32 * 16 // BLOCK)
        assert parsed.prompt_tokens == 16_000, "all of them are load"


def test_prompts_that_are_held_alike_are_summed_as_others_are() -> None:
    picker = Picker(producer("gpu", maxPrefixTokensToMatch=3 * BLOCK), producer("all"))
    for slot, sent in ((0, "ab"), (0, "xyzw"), (1, "a")):
        picker.send(request(sent), slot)
    cached = picker.look(request("abc", "abd", "xyzw", "xyzw", "abc")).cached
    assert cached["all"].tokens == {0: (2 + 2 + 4 + 4 + 2) * BLOCK, 1: 3 * BLOCK}
    assert cached["gpu"].tokens == {0: (2 + 2 + 3 + 3 + 2) * BLOCK, 1: 3 * BLOCK}


def test_a_pick_is_recorded_once_and_leaves_nothing_in_the_request() -> None:
    picker = Picker()
    asked = picker.send(request("abc"), 0)
    assert asked.scratch == {}
    for each in picker.producers:
        each.picked(asked, picker.endpoints[1])
    assert picker.held("abc") == {0: 12}


def test_nothing_is_learned_of_a_request_that_went_nowhere() -> None:
    picker = Picker()
    picker.look(request("abc"))
    assert picker.held("abc") == {}


def test_prompts_of_one_request_count_by_themselves_and_are_summed() -> None:
    picker = Picker()
    picker.send(request("ab", "abcd", "", "xy"), 0)
    asked = picker.look(request("abcd", "xyz", "q", ""))
    assert asked.cached["gpu"].total_tokens == 8 * BLOCK
    assert asked.cached["gpu"].tokens == {0: 6 * BLOCK}


def test_a_request_without_prompts_has_nothing_cached() -> None:
    picker = Picker()
    picker.send(request(), 0)
    assert picker.look(request("")).cached["gpu"].total_tokens == 0


def test_a_producer_with_a_smaller_limit_writes_no_more_than_that() -> None:
    picker = Picker(producer("gpu", maxPrefixTokensToMatch=9), producer("all", maxPrefixTokensToMatch=100))
    asked = picker.look(picker.send(request("abcdef", "xy"), 0))
    assert (asked.cached["gpu"].total_tokens, asked.cached["all"].total_tokens) == (4 * BLOCK, 8 * BLOCK)
    again = picker.look(request("abcdef", "xy"))
    assert (again.cached["gpu"].tokens, again.cached["all"].tokens) == ({0: 4 * BLOCK}, {0: 8 * BLOCK})


def test_a_limit_below_one_block_is_no_match() -> None:
    picker = Picker(producer("gpu", maxPrefixTokensToMatch=BLOCK - 1))
    picker.send(request("abc"), 0)
    cached = picker.look(request("abc")).cached["gpu"]
    assert (cached.total_tokens, cached.tokens) == (0, {})


def test_capacity_follows_what_the_engine_reports() -> None:
    picker = Picker(producer("gpu"))
    assert picker.cache.capacity_tokens(Slot(0), "gpu") == 500_000
    picker.send(request("abcdefghij"), 0)
    picker.cache.engine_reported(candidate(0, gpu_blocks=1))
    assert picker.cache.capacity_tokens(Slot(0), "gpu") == 16
    assert picker.held("abcdefghij") == {0: 16}, "what does not fit is gone at once"
    picker.cache.engine_reported(candidate(0, gpu_blocks=10**15))
    picker.send(request("abcdefghij"), 0)
    assert picker.held("abcdefghij") == {0: 40}


def test_a_report_that_changes_nothing_makes_no_match_stale() -> None:
    picker = Picker()
    before = picker.cache.index.generation
    picker.cache.engine_reported(picker.endpoints[0])
    assert picker.cache.index.generation == before


def test_an_endpoint_goes_with_all_that_it_held() -> None:
    picker = Picker()
    picker.send(request("abc"), 0)
    picker.cache.endpoint_removed(Slot(0), "10.0.0.0:8000")
    assert picker.held("abc") == {}
    assert picker.cache.capacity_tokens(Slot(0), "gpu") == picker.cache.used_tokens(Slot(0), "gpu") == 0
    picker.cache.endpoint_added(candidate(0))
    assert picker.held("abc") == {}


def test_a_slot_given_to_another_endpoint_begins_empty_even_if_the_removal_of_the_first_was_missed() -> None:
    picker = Picker()
    picker.send(request("abc"), 0)
    picker.cache.endpoint_added(candidate(0))
    assert picker.held("abc") == {}


def test_an_unknown_endpoint_is_added_with_its_first_pick() -> None:
    picker = Picker(endpoints=0)
    picker.endpoints = [candidate(0)]
    picker.send(request("abc"), 0)
    assert picker.held("abc") == {0: 12}


def test_an_endpoint_removed_between_the_decision_and_the_pick_breaks_nothing() -> None:
    picker = Picker()
    picker.send(request("abc"), 1)
    asked = picker.look(request("abcd"))
    picker.cache.endpoint_removed(Slot(1), "")
    picker.cache.picked(asked, picker.endpoints[0])
    picker.cache.index.check_integrity()
    assert picker.held("abcd") == {0: 16}


def test_a_tier_of_unknown_capacity_holds_nothing_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        picker = Picker(producer("gpu"), producer("my-cpu-producer"))
        for _ in range(3):
            picker.send(request("abc"), 0)
    assert picker.held("abc", name="my-cpu-producer") == {}
    assert [record.message for record in caplog.records] == [
        "my-cpu-producer: nothing says how much the cpu tier holds, so it counts as empty; write lruCapacityPerServer"
    ]


def test_the_state_has_what_is_held_in_each_tier() -> None:
    picker = Picker(producer("gpu", lruCapacityPerServer=1), producer("cpu", lruCapacityPerServer=2))
    for slot in (0, 0, 1):
        picker.send(request("abcdefghij"), slot)
    assert picker.cache.used_tokens(Slot(0), "cpu") == 32
    assert picker.cache.statistics().tokens_by_tier == (32, 64)


def test_two_producers_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two producers have one name: a, a"):
        PrefixCache([producer("a"), producer("a")])
    with pytest.raises(ValueError, match="serves at least one producer"):
        PrefixCache([])


def test_what_is_held_is_in_the_prompts_own_tokens_if_they_are_known() -> None:
    picker = Picker(endpoints=2)
    picker.send(request("ab"), 0)
    asked = request("abc")
    asked.tokens = (Prompt(b"t", bytes(4 * 6)),)  # half as many as with four bytes to a token
    picker.look(asked)
    assert (asked.cached["gpu"].tokens, asked.cached["gpu"].total_tokens) == ({Slot(0): 4}, 6)
    sent = request("abc")
    sent.tokens = sent.prompts
    picker.look(sent)
    assert (sent.cached["gpu"].tokens, sent.cached["gpu"].total_tokens) == ({Slot(0): 8}, 12)
