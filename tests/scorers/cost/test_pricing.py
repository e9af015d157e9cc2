"""The work under way at endpoints, and the price of a request that follows from it."""

from __future__ import annotations

from math import inf, isfinite, nan
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scorers.base import CachedPrefix, Candidate, Held, Mode, Observation, Prediction, Request, Slot, Tier, TierReport
from scorers.cost.constants import Constants, Lane
from scorers.cost.endpoint_costs import DISPLACED, HELD_UP
from scorers.cost.model import OPEN, CostModel
from scorers.cost.pricing import Pricing

KNOWN = Constants(fixed_s=0.0, token_s=1e-4, pair_s=0.0, decode_s=0.0, cpu=Lane(0.0, 1e-5), stay_s=10.0)


def endpoint(slot: int = 0, **numbers: Any) -> Candidate:
    return Candidate(slot=Slot(slot), address=f"10.0.0.{slot}:8000", **numbers)


def asked(tokens: int = 1000, at: float = 0.0, *, streaming: bool = True, **held: dict[int, int]) -> Request:
    cached = {
        name: CachedPrefix(Tier(name), tokens, {Slot(slot): n for slot, n in by_slot.items()})
        for name, by_slot in held.items()
    }
    return Request("r", "m", "m", prompt_tokens=tokens, received_s=at, cached=cached, streaming=streaming)


def selfish(**settings: Any) -> CostModel:
    return CostModel(KNOWN, others_weight=0.0, **settings)


def price(model: CostModel, candidate: Candidate, request: Request | None = None) -> float:
    return Pricing(model, request or asked()).estimate(candidate).price_s


def send(model: CostModel, candidate: Candidate, request: Request | None = None) -> Candidate:
    """Pick ``candidate``, and return it as the pool then has it."""
    request = request or asked()
    pricing = Pricing(model, request)
    computed = pricing.estimate(candidate).computed_tokens
    pricing.send(candidate)
    return endpoint(
        candidate.slot,
        in_flight=candidate.in_flight + 1,
        in_flight_tokens=candidate.in_flight_tokens + computed,
    )


def observation(candidate: Candidate, ttft_s: float | None, tokens: int = 1000, **seen: Any) -> Observation:
    prediction = Prediction(candidate, (Held(Tier.GPU, 0, Mode.APPROXIMATE),), tokens)
    return Observation(prediction, **{"status": 200, "streaming": True, "ttft_s": ttft_s, **seen})


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


def answered(model: CostModel, until: int = 50) -> None:
    """Send ``until`` streamed requests, whose responses begin in time."""
    for n in range(until):
        one = endpoint(1)
        send(model, one, asked(at=float(n)))
        model.observed(observation(one, 0.1))


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


def test_learning_begins_with_the_load_time_that_an_engine_reports() -> None:
    reporting = endpoint(tiers={Tier.CPU: TierReport(load_token_s=4e-5)})
    warm = asked(cpu={0: 999, 1: 999})
    model = selfish()
    assert price(model, endpoint(1), warm) == pytest.approx(0.01009)
    assert price(model, reporting, warm) == pytest.approx(999 * 4e-5 + 1e-4)
    assert price(model, endpoint(1), warm) == price(model, reporting, warm), "they are of a kind"
    for fixed in (selfish(follows_reports=False), selfish(learns=False)):
        assert price(fixed, reporting, warm) == pytest.approx(0.01009)


@pytest.mark.parametrize("absurd", [0.0, -1.0, 5.0, inf, nan])
def test_a_reported_load_time_that_is_impossible_is_ignored(absurd: float) -> None:
    model, warm = selfish(), asked(cpu={0: 999})
    impossible, reporting = (endpoint(tiers={Tier.CPU: TierReport(load_token_s=s)}) for s in (absurd, 4e-5))
    assert price(model, impossible, warm) == pytest.approx(0.01009)
    assert price(model, reporting, warm) == pytest.approx(999 * 4e-5 + 1e-4)


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


def test_a_slot_that_another_endpoint_has_now_begins_anew() -> None:
    model = selfish()
    send(model, endpoint())
    other = Candidate(slot=Slot(0), address="10.9.9.9:8000", in_flight_tokens=1000, in_flight=1)
    assert price(model, other) == pytest.approx(0.1)


def test_a_late_end_at_an_endpoint_that_is_gone_is_not_taken_for_its_slots_next_one() -> None:
    model, gone = CostModel(KNOWN), endpoint()
    send(model, gone)
    other = Candidate(slot=Slot(0), address="10.9.9.9:8000")
    send(model, other)
    costs = model.current(other)
    model.observed(observation(gone, 3.0))
    assert model.current(other) is costs
    assert costs.kind.learner.used == 0


def test_a_clock_that_jumps_makes_no_request_wait_forever() -> None:
    model = selfish()
    later = send(model, endpoint(), asked(at=1e9))
    assert price(model, later, asked(at=5.0)) <= 600.2
    again = send(model, later, asked(at=5.0))
    assert price(model, again, asked(at=700.0)) == pytest.approx(0.1)


def test_observations_are_followed_and_what_was_computed_of_a_candidate_before_is_not_used() -> None:
    model = CostModel(KNOWN)
    idle = endpoint()
    assert Pricing(model, asked(10_000)).estimate(idle).prefill_s == pytest.approx(1.0)
    for n in range(200):
        idle, tokens = endpoint(), 500 + 100 * (n % 50)
        send(model, idle, asked(tokens, at=100.0 * n))
        model.observed(observation(idle, 0.05 + 2e-4 * tokens, tokens))
    assert Pricing(model, asked(10_000)).estimate(idle).prefill_s == pytest.approx(2.0, rel=0.05)


def test_one_slow_endpoint_is_distinguished_from_its_kind() -> None:
    model = CostModel(KNOWN, others_weight=0.0)
    fleet: list[Candidate] = []
    for n in range(1200):
        one, slower = endpoint(n % 4), 4.0 if n % 4 == 3 else 1.0
        send(model, one, asked(1000 + 10 * (n % 97), at=100.0 * n))
        model.observed(observation(one, slower * (0.01 + 1e-4 * (1000 + 10 * (n % 97))), 1000 + 10 * (n % 97)))
    fleet = [endpoint(i) for i in range(4)]
    seconds = Pricing(model, asked(at=1e6)).seconds(fleet)
    assert seconds[0] == seconds[1] == seconds[2]
    assert seconds[3] / seconds[0] == pytest.approx(4.0, rel=0.25)


@pytest.mark.parametrize("off", [0.02, 60.0])
def test_equal_endpoints_stay_equal_while_a_start_that_is_far_off_is_left(off: float) -> None:
    model, random = CostModel(KNOWN, others_weight=0.0), Random(3)
    for n in range(800):
        one, tokens = endpoint(n % 4), random.choice([500, 2000, 9000])
        send(model, one, asked(tokens, at=100.0 * n))
        model.observed(observation(one, off * 1e-4 * tokens * random.gauss(1.0, 0.1) + 0.01, tokens))
        seconds = Pricing(model, asked(5000, at=100.0 * n + 50)).seconds([endpoint(slot) for slot in range(4)])
        assert len(set(seconds)) == 1, f"after {n + 1} requests"
    assert seconds[0] == pytest.approx(off * 0.5 + 0.01, rel=0.15)


def test_a_slow_endpoint_is_tried_again_after_a_while_and_forgiven_if_it_has_recovered() -> None:
    model = CostModel(KNOWN, others_weight=0.0)

    def serve(one: Candidate, at: float, slower: float) -> None:
        send(model, one, asked(at=at))
        model.observed(observation(one, slower * 0.11))

    def choose(at: float) -> int:
        seconds = Pricing(model, asked(at=at)).seconds([endpoint(0), endpoint(1)])
        return int(seconds[1] <= seconds[0])

    for n in range(800):
        serve(endpoint(n % 2), n * 1.0, 4.0 if n % 2 else 1.0)
    assert choose(800.0) == 0
    chosen = []
    for n in range(800, 3000):  # it has recovered, and requests go to the faster one
        slot = choose(n * 1.0)
        serve(endpoint(slot), n * 1.0, 1.0)
        chosen.append(slot)
    assert 0 < chosen[:600].count(1) < 60
    assert model.current(endpoint(1)).computing.factor == 1.0


def test_a_kind_without_observations_begins_like_the_others() -> None:
    """If the start were ten times slower than the truth, a new kind would never get a request."""
    model = CostModel(KNOWN, kind_label="gpu", others_weight=0.0)
    known, new = ({"labels": {"gpu": gpu}} for gpu in ("h100", "h200"))
    for n in range(200):
        one = endpoint(0, **known)
        tokens = 500 + 100 * (n % 50)
        send(model, one, asked(tokens, at=100.0 * n))
        model.observed(observation(one, 1e-5 * tokens + 0.001, tokens))
    seconds = Pricing(model, asked(10_000)).seconds([endpoint(0, **known), endpoint(1, **new)])
    assert seconds[0] == seconds[1] == pytest.approx(0.1, rel=0.2)


def test_kinds_of_hardware_are_distinguished_by_their_label() -> None:
    model = CostModel(KNOWN, kind_label="gpu")
    for n in range(200):
        for slot, gpu, token_s in ((0, "h100", 5e-5), (1, "l4", 4e-4)):
            one = endpoint(slot, labels={"gpu": gpu})
            tokens = 500 + 100 * (n % 50)
            send(model, one, asked(tokens, at=100.0 * n))
            model.observed(observation(one, 0.01 + token_s * tokens, tokens))
    times = [
        Pricing(model, asked(10_000)).estimate(endpoint(slot, labels={"gpu": gpu})).prefill_s
        for slot, gpu in ((0, "h100"), (1, "l4"))
    ]
    assert times == pytest.approx([0.5, 4.0], rel=0.1)


@pytest.mark.parametrize(
    "seen",
    [
        {"status": 500},
        {"streaming": False},
        {"ttft_s": None, "duration_s": 3.0},
        {"ttft_s": -1.0},
        {"ttft_s": inf},
    ],
    ids=str,
)
def test_times_that_show_nothing_about_a_prompt_change_nothing(seen: dict[str, Any]) -> None:
    model = CostModel(KNOWN)
    for n in range(64):
        one = endpoint()
        send(model, one, asked(at=100.0 * n))
        model.observed(observation(one, **{"ttft_s": 30.0, **seen}))
    assert Pricing(model, asked()).estimate(endpoint()).total_s == pytest.approx(0.1)


def test_waits_for_memory_teach_nothing_about_prefill() -> None:
    model = CostModel(KNOWN)
    for n in range(64):
        full = endpoint(running=5, kv_usage=0.95, block_tokens=16, gpu_blocks=625)
        send(model, full, asked(at=100.0 * n))
        model.observed(observation(full, 5.0))
    assert Pricing(model, asked()).estimate(endpoint()).total_s == pytest.approx(0.1)


def test_a_reported_load_takes_precedence_over_the_expected_one() -> None:
    expected, reported = CostModel(KNOWN), CostModel(KNOWN)
    for n in range(200):
        one = endpoint()
        request = asked(10_000, at=100.0 * n, cpu={0: 9_000})
        for model, seen in ((expected, {}), (reported, {"prompt_tokens": 10_000, "cached_tokens": 0})):
            send(model, one, request)
            model.observed(observation(one, 1.0, 10_000, **seen))  # the engine had lost the prefix, and computed it all
    assert Pricing(reported, asked(1000)).estimate(endpoint()).prefill_s == pytest.approx(0.1, rel=0.05)
    assert Pricing(expected, asked(10_000, cpu={0: 9_000})).estimate(endpoint()).total_s > 0.5


def test_picks_that_are_never_observed_are_not_kept_forever() -> None:
    model = CostModel(KNOWN)
    for n in range(OPEN + 100):
        send(model, endpoint(n % 7), asked(at=float(n)))
    assert len(model._sent) <= OPEN


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
