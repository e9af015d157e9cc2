"""Prices in seconds on simulated engines: which constants are learned, and what they gain."""

from __future__ import annotations

from random import Random
from statistics import fmean

import pytest
from typing_extensions import override

from epp.lab.engine.engine import Engine
from epp.lab.engine.job import Job
from epp.lab.engine.preset import PRESETS
from epp.lab.fleet.arrivals import Arriving, Concurrent, Timed
from epp.lab.fleet.fleet import Fleet, FleetSettings
from epp.lab.fleet.policies import BY_NAME, plan_of
from epp.lab.fleet.prompts import Ask, PromptPart
from scorers.cost.constants import Constants
from scorers.cost.tier_cost import TierCostProducer

ENGINE = PRESETS["qwen3-32b-tp2-h100"]
ENDPOINTS = 4


class FrozenEngine(Engine):
    """An engine that accepts requests and never serves them."""

    @override
    def submit(self, job: Job, now: float) -> None:
        """Accept the job and drop it."""


def simulated(policy: str, seed: int = 0, *, response_seen: bool = True) -> Fleet:
    settings = FleetSettings(response_seen=response_seen)
    return Fleet(ENGINE, [plan_of(BY_NAME[policy], ENGINE, seed)], ENDPOINTS, seed, settings)


def learned(fleet: Fleet) -> TierCostProducer:
    (producer,) = (p for p in fleet.core.plan.profile.producers if isinstance(p, TierCostProducer))
    return producer


def constants(fleet: Fleet) -> Constants:
    (kind,) = learned(fleet).model.kinds.values()
    return kind.constants


def groups(seed: int, count: int, system: int, requests: int) -> list[Ask]:
    random = Random(seed)
    return [
        Ask((PromptPart(random.randrange(count), system), PromptPart(1000 + n, random.choice([128, 256, 1024]))), 64)
        for n in range(requests)
    ]


def paced(asks: list[Ask], rate: float, seed: int) -> Timed:
    random, at, arrivals = Random(seed), 0.0, []
    for ask in asks:
        at += random.expovariate(rate)
        arrivals.append(Arriving(at, ask))
    return Timed(arrivals)


def mean_ttft_s(policy: str, seed: int) -> float:
    run = simulated(policy, seed).run(Concurrent(groups(seed, 24, 24_000, 200), 24))
    return fmean(record.first_at - record.arrived_at for record in run.records)


def test_what_engines_take_is_learned_from_requests_among_many_others() -> None:
    fleet = simulated("cost")
    lengths = Random(1)
    asks = [Ask((PromptPart(n, lengths.choice([500, 2_000, 8_000, 20_000])),), 64) for n in range(400)]
    fleet.run(paced(asks, 4.0, 1))
    timing, known = ENGINE.timing, constants(fleet)
    for tokens in (8_000, 20_000):
        true = tokens * timing.token_s + tokens**2 / 2 * timing.prefill_pair_s
        assert known.prefill_s(tokens, 0) == pytest.approx(true, rel=0.15)
    assert learned(fleet).model.answers_seen


def test_without_responses_to_see_nothing_is_learned_and_nobody_is_late() -> None:
    fleet = simulated("cost", response_seen=False)
    fleet.run(Concurrent(groups(1, 8, 8_000, 60), 12))
    assert constants(fleet) == Constants()
    assert not learned(fleet).model.answers_seen


def test_an_engine_that_has_stopped_answering_is_avoided_though_its_numbers_stay_good() -> None:
    fleet = simulated("cost")
    fleet.run(Concurrent(groups(1, 8, 8_000, 60), 12))
    fleet.engines[0] = FrozenEngine(ENGINE)
    run = fleet.run(paced(groups(2, 8, 8_000, 60), 2.0, 1))
    first, last = run.records[:30], run.records[30:]
    assert sum(record.endpoint == 0 for record in first) < 15
    assert sum(record.endpoint == 0 for record in last) <= 2


@pytest.mark.parametrize("policy", ["cost", "cost-picker"])
def test_where_memory_is_scarce_first_tokens_come_sooner_than_by_weights(policy: str) -> None:
    """Four endpoints hold six of 24 prefixes each on the GPU; seeds are paired, and no pair is close."""
    seeds = range(4)
    weights, prices = ([mean_ttft_s(name, seed) for seed in seeds] for name in ("tiered", policy))
    assert fmean(prices) < 0.95 * fmean(weights), (prices, weights)
