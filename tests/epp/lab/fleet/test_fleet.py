from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import pytest

from epp.config.load import load_text
from epp.config.wiring.build import build
from epp.config.wiring.kinds import known_kinds
from epp.lab.engine.job import Hits
from epp.lab.fleet.arrivals import Arriving, Concurrent, Sessions, Timed
from epp.lab.fleet.fleet import Fleet
from epp.lab.fleet.policies import POLICIES
from epp.lab.fleet.prompts import Ask, PromptPart
from scorers.base import Candidate, NoParameters, Observation, Request, Scorer, Tier
from tests.epp.lab.fleet.small import SMALL, asks, fleet, history

NAMES = [policy.name for policy in POLICIES]


@pytest.mark.parametrize("policy", NAMES)
def test_a_seed_decides_everything_that_happens(policy: str) -> None:
    first, second = (history(fleet(policy).run(Concurrent(asks(), 8)).records) for _ in range(2))
    assert first == second


def test_another_seed_gives_another_run() -> None:
    runs = [history(fleet("random", seed=seed).run(Concurrent(asks(), 8)).records) for seed in (1, 2)]
    assert runs[0] != runs[1]


@pytest.mark.parametrize("policy", NAMES)
def test_every_request_ends_once_and_its_tokens_add_up(policy: str) -> None:
    simulated = fleet(policy)
    wanted = asks()
    ended: list[str] = []
    run = simulated.run(Concurrent(wanted, 8), lambda record: ended.append(str(record.ask)))
    assert sorted(ended) == sorted(map(str, wanted))
    assert sorted(map(str, (r.ask for r in run.records))) == sorted(map(str, wanted))
    tallies = [engine.tally for engine in simulated.engines]
    assert sum(t.prompt_tokens for t in tallies) == sum(ask.prompt_tokens for ask in wanted)
    assert sum(t.generated_tokens for t in tallies) == sum(ask.output_tokens for ask in wanted)
    assert sum(t.gpu_hit_tokens for t in tallies) == sum(r.hits.gpu for r in run.records)
    assert sum(t.cpu_hit_tokens for t in tallies) == sum(r.hits.cpu for r in run.records)
    assert sum(candidate.in_flight for candidate in simulated.core.pool.candidates()) == 0
    for engine in simulated.engines:
        engine.gpu.check()
        engine.cpu.check()


@pytest.mark.parametrize("policy", NAMES)
def test_no_plugin_of_a_policy_ever_fails(policy: str) -> None:
    simulated = fleet(policy)
    simulated.run(Concurrent(asks(), 8))
    assert not simulated.core.plan.profile.failures


def test_what_happens_to_a_request_happens_in_order() -> None:
    for record in fleet().run(Concurrent(asks(), 8)).records:
        assert record.arrived_at < record.admitted_at <= record.first_at <= record.ended_at


def test_a_closed_loop_keeps_its_concurrency() -> None:
    concurrency = 8
    records = fleet().run(Concurrent(asks(), concurrency)).records
    last = max(r.arrived_at for r in records)
    change: Counter[float] = Counter()
    for record in records:
        change[record.arrived_at] += 1
        change[record.ended_at] -= 1
    levels = list(accumulate(change[at] for at in sorted(change) if at < last))
    assert len(levels) > 10
    assert set(levels) == {concurrency}


def test_an_open_loop_waits_for_nobody() -> None:
    times = [0.001 * n for n in range(60)]
    source = Timed([Arriving(at, ask) for at, ask in zip(times, asks(), strict=True)])
    assert [record.arrived_at for record in fleet().run(source).records] == times


def test_round_robin_takes_each_endpoint_in_turn() -> None:
    endpoints = [record.endpoint for record in fleet("round-robin").run(Concurrent(asks(), 8)).records]
    assert endpoints == [n % 3 for n in range(60)]


def test_a_lone_request_is_sent_where_its_prefix_is_cached() -> None:
    simulated = fleet()
    ask = Ask((PromptPart(1, 640),), 8)
    first, second = (simulated.run(Concurrent([ask], 1)).records[0] for _ in range(2))
    assert first.hits == Hits(0, 0)
    assert second.endpoint == first.endpoint
    assert second.hits.gpu == 640 - SMALL.block_tokens  # the last block is computed again
    assert second.predicted_tokens == 640


def test_a_conversation_finds_its_own_answers_in_the_cache() -> None:
    first = Ask((PromptPart(1, 160),), 80, answer=7, session="s")
    second = Ask((PromptPart(1, 160), PromptPart(7, 80), PromptPart(2, 80)), 16, session="s")
    records = fleet("tiered").run(Sessions([[first, second]], concurrency=1, think_s=lambda: 5.0)).records
    assert records[1].arrived_at == records[0].ended_at + 5.0
    assert records[1].endpoint == records[0].endpoint
    assert records[1].hits.gpu == 160 + 80 - SMALL.block_tokens  # the last token's KV was never computed


def test_a_request_that_no_engine_can_serve_ends_refused_and_the_others_go_on() -> None:
    wanted = [Ask((PromptPart(1, 4000),), 8), Ask((PromptPart(2, 160),), 8)]
    records = fleet().run(Concurrent(wanted, 1)).records
    assert "4000" in records[0].refused
    assert records[1].ended_at > 0
    assert not records[1].refused


def test_requests_that_the_picker_refuses_are_told_apart(tmp_path: Path) -> None:
    config = tmp_path / "nobody.yaml"
    config.write_text(
        """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: label-selector-filter, parameters: {matchLabels: {gpu: none}}}
"""
    )
    records = fleet(str(config)).run(Concurrent(asks(10), 2)).records
    assert len(records) == 10
    assert all(record.refused.startswith("the picker: ") for record in records)


class Learner(Scorer[NoParameters]):
    """A scorer without an opinion that records its observations."""

    type_name = "learner"

    def __init__(self, parameters: NoParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        self.seen: list[Observation] = []

    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:
        return [0.0] * len(candidates)

    def observed(self, observation: Observation) -> None:
        self.seen.append(observation)


LEARNING = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: prefix-cache-scorer}, {type: learner}]
"""


def test_what_plugins_learn_of_a_request_is_what_happened() -> None:
    plan = build(load_text(LEARNING), kinds={**known_kinds(), Learner.type_name: Learner})
    [learner] = [scorer for scorer, _ in plan.profile.scorers if isinstance(scorer, Learner)]
    simulated = Fleet(SMALL, [plan], 3)
    records = simulated.run(Concurrent(asks(), 8)).records
    for observation, record in zip(learner.seen, sorted(records, key=lambda r: r.ended_at), strict=True):
        assert observation.ttft_s == record.first_at - record.arrived_at
        assert observation.cached_tokens == record.hits.gpu + record.hits.cpu
        assert observation.cached_by_tier == {Tier.GPU: record.hits.gpu, Tier.CPU: record.hits.cpu}
