"""A trial decides as production does and leaves no trace, whatever plugins there are."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from inspect import signature
from random import Random
from typing import Any
from weakref import ref

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.config.wiring.build import build
from epp.config.wiring.kinds import known_kinds
from epp.explain.trial import rehearse
from epp.picking.profile import Profile
from epp.pool.pool import Endpoint, EngineMetrics, Pool
from scorers.affinity.session_affinity import (
    SessionAffinityFilter,
    SessionAffinityParameters,
    SessionAffinityScorer,
    Strategy,
)
from scorers.base import Candidate, Filter, Picker, Prompt, Request, Scorer, Slot
from scorers.load.queue import QueueScorer
from scorers.pickers import MaxScorePicker
from scorers.prefix.no_hit_lru import NoHitLruScorer
from tests.epp.doubles import Only


def request(number: int, blocks: int = 4) -> Request:
    prompt = Prompt(identity=b"m", data=bytes([number]) * 256 * blocks)
    return Request(id="r", model="m", target_model="m", prompts=(prompt,), prompt_tokens=64 * blocks, cached={})


def made(kind: type[Any]) -> Any:
    """Return a plugin with its defaults, and with the same random numbers each time."""
    return kind(random=Random(3)) if "random" in signature(kind).parameters else kind()


class Stage:
    """A profile of every plugin type that needs no parameters, over five endpoints."""

    def __init__(self, picker: type[Picker[Any]]) -> None:
        self.pool = Pool()
        plan = build(random=Random(7))
        assert plan.prefix_cache is not None
        self.pool.listeners.append(plan.prefix_cache)
        self.cache = plan.prefix_cache
        self.pool.replace([Endpoint(f"10.0.0.{n}:8000", labels={"zone": str(n % 2)}) for n in range(1, 6)])
        for c in self.pool.candidates():
            self.pool.observe(c.slot, EngineMetrics(waiting=c.slot % 2, gpu_blocks=40, block_tokens=16), 1.0)
        kinds = [kind for kind in known_kinds().values() if isinstance(kind, type)]
        scorers = [made(kind) for kind in kinds if issubclass(kind, Scorer)]
        filters = [made(kind) for kind in kinds if issubclass(kind, Filter)]
        # Those for roles and labels leave nobody here.
        filters = [f for f in filters if f.keep(request(0), self.pool.candidates())]
        self.profile = Profile(filters, plan.profile.producers, [(scorer, 1.0) for scorer in scorers], made(picker))

    def decide(self, asked: Request) -> str:
        schedule = self.profile.schedule(asked, self.pool.candidates())
        self.profile.picked(asked, schedule.chosen[0])
        return schedule.chosen[0].address


PICKERS = [kind for kind in known_kinds().values() if isinstance(kind, type) and issubclass(kind, Picker)]


@pytest.mark.parametrize("picker", PICKERS)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=30))
def test_trials_between_requests_change_no_decision(picker: type[Picker[Any]], steps: list[tuple[int, bool]]) -> None:
    with_trials, without = Stage(picker), Stage(picker)
    for number, tried in steps:
        if tried:
            trial = rehearse(with_trials.profile, request(number), with_trials.pool.candidates())
            foretold = trial.schedule.chosen[0].address if trial.schedule else None
        decided = with_trials.decide(request(number))
        assert decided == without.decide(request(number))
        assert not tried or foretold == decided
    assert with_trials.cache.statistics() == without.cache.statistics()
    assert with_trials.profile.failures == without.profile.failures
    with_trials.cache.index.check_integrity()


def test_a_trial_does_not_make_a_prefix_recent() -> None:
    """Two prompts fill the tier; the older one is explained, and a third prompt evicts it all the same."""
    stage = Stage(MaxScorePicker)
    (first, *_) = stage.pool.candidates()
    for number in (1, 2):
        asked = request(number)
        stage.profile.schedule(asked, [first])
        stage.profile.picked(asked, first)
    before = held(stage, 1, first)
    assert before
    rehearse(stage.profile, request(1), [first])
    asked = request(3)
    stage.profile.schedule(asked, [first])
    stage.profile.picked(asked, first)
    assert held(stage, 1, first) < before
    assert held(stage, 2, first) > held(stage, 1, first)


def held(stage: Stage, number: int, candidate: Candidate) -> int:
    trial = rehearse(stage.profile, asked := request(number), [candidate])
    assert trial.schedule is not None
    return max(cached.tokens.get(candidate.slot, 0) for cached in asked.cached.values())


class Broken(Scorer[Any]):
    type_name = "broken"

    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:
        raise ZeroDivisionError


def test_what_filters_and_failures_did_is_told_and_not_counted(caplog: pytest.LogCaptureFixture) -> None:
    pool = Pool()
    pool.replace([Endpoint(f"10.0.0.{n}:8000") for n in (1, 2, 3)])
    profile = Profile([Only("10.0.0.2:8000")], [], [(QueueScorer(), 1.0), (Broken(), 1.0)], MaxScorePicker())
    trial = rehearse(profile, request(1), pool.candidates())
    (narrowing,) = trial.narrowings
    assert (narrowing.name, narrowing.seen, [c.address for c in narrowing.dropped]) == (
        "only", 3, ["10.0.0.1:8000", "10.0.0.3:8000"],
    )  # fmt: skip
    assert trial.failed == ("broken",)
    assert not profile.failures
    assert not caplog.records
    nobody = rehearse(Profile([Only("10.9.9.9:1")], [], [], MaxScorePicker()), request(1), pool.candidates())
    assert nobody.schedule is None
    assert nobody.refusal is not None


def test_a_trial_times_nobody() -> None:
    runs: list[str] = []
    stage = Stage(MaxScorePicker)
    stage.profile.time_with(lambda point, kind, name: lambda seconds: runs.append(name))
    rehearse(stage.profile, request(1), stage.pool.candidates())
    assert not runs
    stage.decide(request(1))
    assert runs


def test_a_struct_of_plain_data_comes_out_of_every_plugins_state() -> None:
    stage = Stage(MaxScorePicker)
    stage.decide(request(1))
    plugins = (*stage.profile.producers, *stage.profile.filters, *(s for s, _ in stage.profile.scorers))
    for plugin in plugins:
        msgspec.json.encode(plugin.state())


def test_what_was_asked_about_is_not_kept() -> None:
    ids = SessionAffinityParameters(strategy=Strategy.SESSION_ID)
    scorers = [NoHitLruScorer(), SessionAffinityScorer(ids)]
    profile = Profile([SessionAffinityFilter(ids)], [], [(scorer, 1.0) for scorer in scorers], MaxScorePicker())
    candidates = [Candidate(Slot(n), f"10.0.0.{n}:8000") for n in range(3)]

    class Headers(dict[str, str]):
        """Headers that a weak reference can watch, as it cannot watch a request."""

    def asked() -> Request:
        return msgspec.structs.replace(request(1), headers=Headers({"x-session-id": "s"}))

    first = asked()
    profile.picked(first, profile.schedule(first, candidates).chosen[0])
    about = asked()
    gone = ref(about.headers)
    assert rehearse(profile, about, candidates).schedule is not None
    del about
    gc.collect()
    assert gone() is None
