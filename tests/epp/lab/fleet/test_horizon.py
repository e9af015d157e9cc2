"""A picker's index in horizon mode is compared with what simulated engines hold, in virtual time."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from epp.lab.fleet.arrivals import Concurrent
from epp.lab.fleet.fleet import Fleet, FleetSettings
from epp.lab.fleet.policies import choose, plan_of
from epp.lab.fleet.prompts import Ask, PromptPart
from epp.lab.fleet.record import Record
from scorers.base import Mode, Slot
from tests.epp.lab.fleet.small import SMALL

ENGINE = replace(SMALL, gpu_blocks=512, cpu_blocks=2048)
"""An engine with room for about 11 prompts in GPU memory and 46 in the CPU tier."""
FAR_TOO_MANY = "400000"


def accuracy(records: list[Record]) -> float:
    wrong = sum(abs(r.predicted_tokens - r.hits.gpu - r.hits.cpu) for r in records)
    return 1 - wrong / sum(r.ask.prompt_tokens for r in records)


def served(capacity: str, *, follow: bool, reports: bool = True) -> tuple[Fleet, list[Record]]:
    """Run two endpoints with a configured CPU capacity of ``capacity`` blocks, and twice as many prompts as fit."""
    policy = choose("tiered")
    config = policy.config.replace("CPU_BLOCKS", capacity + ("" if follow else ", followHorizon: false"))
    if not follow:
        config = config.replace("producer, name: gpu", "producer, parameters: {followHorizon: false}, name: gpu")
    plan = plan_of(replace(policy, config=config), ENGINE, 1)
    fleet = Fleet(ENGINE, [plan], 2, 1, FleetSettings(tells_tiers=reports))
    asks = [Ask((PromptPart(n % 180, 640), PromptPart(1000 + n, 64)), 32) for n in range(1500)]
    Random(3).shuffle(asks)
    return fleet, fleet.run(Concurrent(asks, 8)).records[500:]


@pytest.fixture(scope="module")
def horizon_run() -> tuple[Fleet, list[Record]]:
    return served(FAR_TOO_MANY, follow=True)


def test_what_the_horizon_says_is_right_whatever_capacity_was_written(horizon_run: tuple[Fleet, list[Record]]) -> None:
    fleet, records = horizon_run
    assert sum(r.hits.cpu for r in records) > sum(r.hits.gpu for r in records) > 0, "both tiers count"
    assert accuracy(records) > 0.97
    cache = fleet.core.plan.prefix_cache
    assert cache is not None
    assert {cache.mode(Slot(0), producer.name) for producer in cache.producers} == {Mode.HORIZON}
    assert cache.doubted("cpu-prefix-cache-producer") == 2


def test_a_guess_with_the_same_capacity_is_far_off() -> None:
    _, records = served(FAR_TOO_MANY, follow=False)
    assert accuracy(records) < 0.7


def test_engines_that_tell_nothing_are_approximate() -> None:
    fleet, _ = served(FAR_TOO_MANY, follow=True, reports=False)
    cache = fleet.core.plan.prefix_cache
    assert cache is not None
    assert cache.endpoints_by_mode("gpu-prefix-cache-producer")[Mode.APPROXIMATE] == 2


def test_when_all_requests_have_ended_nothing_is_in_flight(horizon_run: tuple[Fleet, list[Record]]) -> None:
    cache = horizon_run[0].core.plan.prefix_cache
    assert cache is not None
    assert len(cache._flights) == 0
    cache.index.check_integrity()
