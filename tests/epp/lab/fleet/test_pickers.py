"""Several pickers before one fleet, and clients that go past them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from epp.lab.fleet.arrivals import Concurrent
from epp.lab.fleet.figures import figures_of
from epp.lab.fleet.fleet import Fleet, FleetSettings
from epp.lab.fleet.policies import choose, plan_of
from epp.lab.fleet.prompts import Ask, PromptPart
from epp.lab.fleet.record import Record
from tests.epp.lab.fleet.small import SMALL, asks, history

ENGINE = replace(SMALL, gpu_blocks=512, cpu_blocks=1024)
"""An engine with room for about 11 prompts in GPU memory and 23 in the CPU tier."""
ENDPOINTS = 3


def fleet(policy: str, *, pickers: int = 1, past: float = 0.0, seed: int = 1) -> Fleet:
    plans = [plan_of(choose(policy), ENGINE, seed + n) for n in range(pickers)]
    return Fleet(ENGINE, plans, ENDPOINTS, seed, FleetSettings(past_pickers=past))


def many(count: int = 900) -> list[Ask]:
    """Return requests whose prompts together exceed all tiers."""
    random = Random(3)
    return [Ask((PromptPart(random.randrange(200), 640), PromptPart(1000 + n, 64)), 32) for n in range(count)]


def false_hits(records: list[Record]) -> float:
    """Return the tokens of predicted hits that were missing, as a share of all prompt tokens."""
    seen = [r for r in records if r.predicted_tokens is not None]
    wrong = sum(max(0, (r.predicted_tokens or 0) - r.hits.gpu - r.hits.cpu - ENGINE.block_tokens) for r in seen)
    return wrong / sum(r.ask.prompt_tokens for r in seen)


def test_a_seed_decides_which_picker_sees_what() -> None:
    first, second = (history(fleet("tiered", pickers=3, past=0.2).run(Concurrent(asks(), 8)).records) for _ in range(2))
    assert first == second


def test_each_picker_sees_its_share_and_counts_its_own_picks_only() -> None:
    simulated = fleet("tiered", pickers=3)
    records = simulated.run(Concurrent(many(300), 8)).records
    shares = [sum(r.picker is picker for r in records) for picker in simulated.pickers]
    assert sum(shares) == 300
    assert min(shares) > 70
    for picker, share in zip(simulated.pickers, shares, strict=True):
        assert len(picker.decision_seconds) == -(-share // 8)
        assert sum(picker.core.ledger.released.values()) == share
        assert len(picker.core.ledger) == 0


def test_pickers_draw_their_own_lots_and_know_nothing_of_each_others_index() -> None:
    simulated = fleet("tiered", pickers=2)
    records = simulated.run(Concurrent([Ask((PromptPart(1, 640),), 8)] * 12, 1)).records
    firsts = [next(r for r in records if r.picker is picker) for picker in simulated.pickers]
    assert [r.predicted_tokens for r in firsts] == [0, 0]


def test_who_goes_past_the_pickers_takes_each_endpoint_in_turn_and_is_predicted_by_nobody() -> None:
    simulated = fleet("tiered", past=0.25)
    records = simulated.run(Concurrent(asks(200), 8)).records
    past = [r for r in records if r.picker is None]
    assert 30 < len(past) < 70
    assert [r.endpoint for r in past] == [n % ENDPOINTS for n in range(len(past))]
    assert {r.predicted_tokens for r in past} == {None}
    assert all(r.ended_at > r.arrived_at for r in past)
    seen = [r for r in records if r.picker is not None]
    assert figures_of(records).prediction_error == figures_of(seen).prediction_error


def test_when_all_go_past_the_pickers_nothing_is_predicted() -> None:
    records = fleet("tiered", past=1.0).run(Concurrent(asks(30), 8)).records
    assert figures_of(records).prediction_error != figures_of(records).prediction_error  # NaN


@pytest.mark.parametrize(("pickers", "past"), [(4, 0.0), (1, 0.5)])
def test_what_horizons_say_is_not_overrated_however_few_requests_a_picker_sees(pickers: int, past: float) -> None:
    told, guessed = (
        false_hits(fleet(policy, pickers=pickers, past=past).run(Concurrent(many(), 8)).records[300:])
        for policy in ("tiered", "tiered-approximate")
    )
    assert told < 0.02
    assert guessed > 0.1
