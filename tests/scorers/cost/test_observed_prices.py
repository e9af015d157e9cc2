"""Prices that follow from what was observed of endpoints and of their kinds."""

from __future__ import annotations

from math import inf, nan
from random import Random
from typing import Any

import pytest

from scorers.base import Candidate, Slot, Tier, TierReport
from scorers.cost.model import OPEN, CostModel
from scorers.cost.pricing import Pricing
from tests.scorers.cost.pricing_site import KNOWN, asked, endpoint, observation, price, selfish, send


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
