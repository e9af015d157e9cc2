"""The work under way at endpoints, and the price of a request that follows from it."""

from __future__ import annotations

from math import isfinite
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scorers.base import CachedPrefix, Candidate, Slot, Tier, TierReport
from scorers.cost.constants import Constants
from scorers.cost.endpoint_costs import DISPLACED, HELD_UP
from scorers.cost.model import CostModel
from scorers.cost.pricing import Pricing
from tests.scorers.cost.pricing_site import KNOWN, answered, asked, endpoint, observation, price, selfish, send


def test_prefill_that_was_sent_there_is_waited_for_until_it_is_computed() -> None:
    model = selfish()
    busy = send(model, send(model, endpoint()))
    assert price(model, busy) == pytest.approx(0.3)
    assert price(model, busy, asked(at=0.15)) == pytest.approx(0.15)
    assert price(model, busy, asked(at=9.0)) == pytest.approx(0.1)


def test_a_prompt_that_the_ledger_counts_as_computed_is_not_waited_for() -> None:
    model = selfish()
    send(model, endpoint())
    assert price(model, endpoint(in_flight=1, in_flight_tokens=0)) == pytest.approx(0.1)


def test_loads_that_were_sent_there_are_waited_for() -> None:
    model = selfish()
    warm = asked(cpu={0: 999})
    assert price(model, endpoint(), warm) == pytest.approx(0.01009)
    busy = send(model, endpoint(), warm)
    assert price(model, busy, warm) == pytest.approx(0.02008)


def test_a_burst_sees_each_pick() -> None:
    model, one = selfish(), endpoint()
    prices = []
    for _ in range(5):
        prices.append(price(model, one))
        one = send(model, one)
    assert prices == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])


def test_an_endpoint_that_has_stopped_answering_looks_the_worse_the_longer_it_does() -> None:
    model = selfish()
    for n in range(50):
        answering = endpoint(1)
        send(model, answering, asked(at=float(n)))
        model.observed(observation(answering, 0.1))
    frozen = send(model, endpoint(), asked(at=50.0))
    assert price(model, frozen, asked(at=60.0)) == pytest.approx(9.4 + 0.1, abs=0.05)
    assert price(model, frozen, asked(at=80.0)) > 29.0


def test_an_answer_that_comes_as_a_whole_is_not_late_while_it_is_written() -> None:
    model = selfish()
    answered(model)
    writing = send(model, endpoint(), asked(at=50.0, streaming=False))
    assert price(model, writing, asked(at=80.0)) == pytest.approx(0.1, abs=0.01)
    assert Pricing(model, asked(at=80.0)).seconds([writing]) == [price(model, writing, asked(at=80.0))]
    both = send(model, writing, asked(at=80.0))
    assert price(model, both, asked(at=90.0)) > 9.0, "the streamed one is"
    model.observed(observation(endpoint(), 31.0, streaming=False))  # of another request
    assert price(model, both, asked(at=90.0)) > 9.0


def test_once_it_has_ended_the_next_one_may_be_late() -> None:
    model, first = selfish(), endpoint()
    answered(model)
    send(model, first, asked(at=50.0, streaming=False))
    model.observed(observation(first, 20.0, streaming=False))
    frozen = send(model, endpoint(), asked(at=70.0))
    assert price(model, frozen, asked(at=90.0)) > 19.0


@pytest.mark.parametrize("learns", [True, False])
def test_what_was_sent_before_it_may_be_late_then_too(learns: bool) -> None:
    model = selfish(learns=learns)
    answered(model)
    streamed = send(model, endpoint(), asked(at=50.0))
    send(model, streamed, asked(at=50.0, streaming=False))
    model.observed(observation(streamed, 1.0, streaming=False))
    frozen = endpoint(in_flight=1, in_flight_tokens=1000)
    assert price(model, frozen, asked(at=90.0)) > 19.0


def test_where_answers_are_not_seen_none_is_late() -> None:
    model = selfish()
    decoding = send(model, endpoint())
    assert price(model, decoding, asked(at=60.0)) == pytest.approx(0.1)


def test_requests_of_others_that_wait_are_taken_to_be_as_long_as_ours() -> None:
    model = selfish()
    for n in range(200):
        send(model, endpoint(1), asked(at=float(n)))
    now = asked(at=999.0)
    assert price(model, endpoint(waiting=3, running=1), now) == pytest.approx(0.4, rel=0.01)
    assert price(model, endpoint(waiting=3, running=1, in_flight=4), now) == pytest.approx(0.1)


def test_a_prompt_that_does_not_fit_into_memory_waits_for_requests_to_end() -> None:
    model = selfish()
    full = endpoint(running=5, kv_usage=0.95, block_tokens=16, gpu_blocks=625)  # 1,900 of 10,000 tokens each
    assert price(model, full) == pytest.approx(10.0 / 5 + 0.1, rel=0.01)
    assert price(model, endpoint(running=5, kv_usage=0.5, block_tokens=16, gpu_blocks=625)) == pytest.approx(0.1)


def test_scarce_memory_is_left_to_requests_that_need_less_of_it() -> None:
    model = CostModel(KNOWN)
    pricing = Pricing(model, asked(gpu={0: 900}, cpu={1: 900}))

    def memory_s(slot: int, usage: float) -> float:
        """Return the price of memory for a request whose prefix is on the GPU (0) or in CPU memory (1)."""
        one = endpoint(slot, running=4, block_tokens=16, gpu_blocks=6250, kv_usage=usage)
        priced = pricing.estimate(one)
        return priced.others_s - priced.prefill_s * (DISPLACED + 4 * HELD_UP)

    assert memory_s(1, 0.9) == pytest.approx(6 * 0.9**4 * 10.0 * 1000 / 100_000)
    assert memory_s(0, 0.9) == pytest.approx(memory_s(1, 0.9) * (1 - 0.9 * 0.9)), "running requests use most of it, too"
    assert memory_s(1, 0.3) < 0.02 * memory_s(1, 0.9)


def test_readings_that_no_engine_has_are_bounded() -> None:
    absurd = endpoint(running=10**30, waiting=10**30)
    most = endpoint(1, running=10_000, waiting=10_000)
    model = CostModel()
    prices = Pricing(model, asked()).seconds([absurd, most, endpoint(2)])
    assert prices[0] == prices[1] > prices[2]
    assert prices[0] < 5_000


def test_hits_count_in_the_engines_chunks() -> None:
    model, chunked = selfish(), endpoint(tiers={Tier.CPU: TierReport(block_tokens=256)})
    assert Pricing(model, asked(cpu={0: 900})).estimate(chunked).cpu_tokens == 768


def test_prefill_costs_requests_that_run_requests_that_wait_and_cached_prefixes() -> None:
    model = CostModel(KNOWN)
    for running, waiting, times in ((0, 0, 1), (4, 0, 3), (4, 6, 9)):
        one = endpoint(running=running, waiting=waiting, in_flight=running + waiting)
        assert Pricing(model, asked()).estimate(one).others_s == pytest.approx(0.1 * times)


def test_if_two_producers_cover_a_tier_the_larger_number_counts() -> None:
    request = asked()
    request.cached = {
        "a": CachedPrefix(Tier.GPU, 1000, {Slot(0): 100, Slot(1): 300}),
        "b": CachedPrefix(Tier.GPU, 1000, {Slot(0): 200}),
    }
    pricing = Pricing(selfish(), request)
    assert [pricing.estimate(endpoint(i)).gpu_tokens for i in range(3)] == [200, 300, 0]


def test_all_at_once_is_the_same_as_one_by_one() -> None:
    model = CostModel(KNOWN)
    fleet = [
        endpoint(0, running=2, waiting=1, kv_usage=0.9, block_tokens=16, gpu_blocks=100),
        send(model, endpoint(1)),
        endpoint(2, running=9),
        endpoint(3),
    ]
    pricing = Pricing(model, asked(gpu={2: 500}, cpu={2: 900, 3: 900}))
    assert pricing.seconds(fleet) == pytest.approx([pricing.estimate(c).price_s for c in fleet])


some_load = st.fixed_dictionaries(
    {
        "waiting": st.integers(0, 20),
        "running": st.integers(0, 20),
        "kv_usage": st.floats(0, 1),
        "in_flight": st.integers(0, 10),
        "in_flight_tokens": st.integers(0, 20_000),
        "block_tokens": st.sampled_from([None, 16]),
        "gpu_blocks": st.sampled_from([None, 1000, 10_000]),
        "tiers": st.sampled_from([{}, {Tier.CPU: TierReport(block_tokens=256)}]),
    }
)
some_held = st.dictionaries(st.integers(0, 5), st.integers(0, 30_000), max_size=5)


@given(
    st.lists(some_load, min_size=1, max_size=6),
    st.integers(1, 30_000),
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 20_000), st.booleans()), max_size=6),
    st.fixed_dictionaries({"gpu": some_held, "cpu": some_held, "storage": some_held}),
    st.floats(60, 160),
)
@settings(deadline=None)
def test_what_is_scored_is_what_is_explained(
    loads: list[dict[str, Any]],
    tokens: int,
    sent: list[tuple[int, int, bool]],
    held: dict[str, dict[int, int]],
    at: float,
) -> None:
    model = CostModel(Constants())
    answered(model, 4)
    fleet = [endpoint(slot, **load) for slot, load in enumerate(loads)]
    for slot, sent_tokens, streaming in sent:
        if slot < len(fleet):
            Pricing(model, asked(sent_tokens, at=60.0, streaming=streaming)).send(fleet[slot])
    pricing = Pricing(model, asked(tokens, at=at, **held))
    assert pricing.seconds(fleet) == pytest.approx([pricing.estimate(one).price_s for one in fleet])


def test_a_clock_that_jumps_makes_no_request_wait_forever() -> None:
    model = selfish()
    later = send(model, endpoint(), asked(at=1e9))
    assert price(model, later, asked(at=5.0)) <= 600.2
    again = send(model, later, asked(at=5.0))
    assert price(model, again, asked(at=700.0)) == pytest.approx(0.1)


numbers = st.integers(0, 10**6)


@given(
    st.lists(
        st.builds(
            Candidate,
            slot=st.integers(0, 9).map(Slot),
            address=st.sampled_from(["a:1", "b:1"]),
            waiting=numbers,
            running=numbers,
            kv_usage=st.floats(0, 1),
            in_flight=numbers,
            in_flight_tokens=numbers,
            fresh=st.booleans(),
            block_tokens=st.sampled_from([None, 0, 16]),
            gpu_blocks=st.sampled_from([None, 0, 1, 10_000]),
        ),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 10**6),
    st.lists(st.floats(0, 1e6), min_size=1, max_size=5),
    st.dictionaries(st.integers(0, 9), st.integers(0, 10**6), max_size=5),
)
@settings(deadline=None)
def test_a_price_is_a_number_whatever_endpoints_report(
    fleet: list[Candidate], tokens: int, times: list[float], held: dict[int, int]
) -> None:
    model = CostModel(KNOWN)
    for at in times:
        pricing = Pricing(model, asked(tokens, at, gpu=held, cpu=held, storage=held))
        assert all(isfinite(seconds) and seconds >= 0.0 for seconds in pricing.seconds(fleet))
        pricing.send(fleet[0])
