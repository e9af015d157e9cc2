"""The prediction at a pick is compared with the observation at its end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from epp.decision import Cause, Outcome, RequestHead, Usage
from epp.extproc.exchange import Exchange
from epp.extproc.options import ExchangeSettings
from epp.parsers import OpenAIParser
from epp.picking.profile import Profile
from epp.picking.request_steps import RequestSteps
from scorers.base import (
    CachedPrefix,
    Candidate,
    Held,
    Mode,
    NoParameters,
    Observation,
    Producer,
    Request,
    Scorer,
    Slot,
    Tier,
)
from scorers.load.queue import QueueScorer
from scorers.pickers import MaxScorePicker
from tests.epp.doubles import BUFFERED, FULL_DUPLEX, NONE, World, completion, request_body, request_headers

HEAD = RequestHead({":path": "/v1/completions"})
SEEN = Outcome(Cause.COMPLETED, 200, 3.0, 1.0, 90, usage=Usage(120, 9, 64, {Tier.GPU: 16, Tier.CPU: 48}))


class Holds(Producer[NoParameters]):
    """Reports tiers of the first endpoint, the slower tier first."""

    type_name = "holds"

    def produce(self, request: Request, candidates: Sequence[Candidate]) -> None:
        request.cached["cpu"] = CachedPrefix(Tier.CPU, 100, {Slot(0): 64}, {Slot(0): Mode.HORIZON})
        request.cached["gpu"] = CachedPrefix(Tier.GPU, 100, {Slot(0): 16})
        request.cached["other-gpu"] = CachedPrefix(Tier.GPU, 100, {Slot(0): 8}, {Slot(0): Mode.PRECISE})
        request.cached["third-gpu"] = CachedPrefix(Tier.GPU, 100, {Slot(0): 12}, {Slot(0): Mode.PRECISE})

    def picked(self, request: Request, candidate: Candidate) -> None:
        pass


class Learns(Scorer[NoParameters]):
    """Keeps each observation, and then raises."""

    type_name = "learns"

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Observation] = []

    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:
        return [0.0] * len(candidates)

    def observed(self, observation: Observation) -> None:
        self.told.append(observation)
        raise ZeroDivisionError


@pytest.fixture
def learner() -> Learns:
    return Learns()


@pytest.fixture
def world(learner: Learns) -> World:
    return World(profile=Profile([], [Holds()], [(QueueScorer(), 1.0), (learner, 1.0)], MaxScorePicker()))


def test_a_plugin_that_learns_is_told_once_what_was_predicted_and_what_was_seen(world: World, learner: Learns) -> None:
    pick_id = world.director.decide(HEAD, completion("x" * 400)).pick_id
    for _ in range(2):
        world.director.picks.ended(pick_id, SEEN)
    (told,) = learner.told
    prediction = told.prediction
    assert (prediction.candidate.slot, prediction.candidate.in_flight) == (0, 0), "as it was before the pick"
    assert prediction.held == (Held(Tier.GPU, 12, Mode.PRECISE), Held(Tier.CPU, 64, Mode.HORIZON))
    assert (prediction.prompt_tokens, prediction.held_tokens, prediction.uncached_tokens) == (100, 64, 36)
    assert (told.prompt_tokens, told.cached_tokens, told.output_tokens) == (120, 64, 9)
    assert told.cached_by_tier == {Tier.GPU: 16, Tier.CPU: 48}
    assert (told.status, told.streaming, told.ttft_s, told.duration_s) == (200, False, 1.0, 3.0)


def test_a_plugin_that_fails_to_learn_is_counted_and_the_request_ends(world: World, learner: Learns) -> None:
    world.director.picks.ended(world.director.decide(HEAD, completion()).pick_id, SEEN)
    assert len(learner.told) == 1
    assert len(world.ledger) == 0
    assert len(world.telemetry.outcomes) == 1


def test_the_time_before_the_pick_is_not_the_endpoints(world: World, learner: Learns) -> None:
    now = [10.0]
    world.director._clock = lambda: now[0]
    arrival = world.director.read(RequestHead({":path": "/v1/completions"}, received_s=9.25), completion())
    world.director.picks.ended(world.director.place(arrival).pick_id, SEEN)
    assert (learner.told[0].ttft_s, learner.told[0].duration_s) == (0.25, 2.25)


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(Cause.COMPLETED, 200, 3.0, response_bytes=90),  # what the access log knows
        Outcome(Cause.DISCONNECTED),
        Outcome(Cause.COMPLETED, 200, 3.0, 1.0, usage=Usage(120, 9, 64), served_by="10.0.0.2:8000"),
    ],
)
def test_a_response_that_nobody_saw_or_another_endpoint_gave_teaches_nothing(
    world: World, learner: Learns, outcome: Outcome
) -> None:
    world.director.picks.ended(world.director.decide(HEAD, completion()).pick_id, outcome)
    assert learner.told == []


def test_a_pick_that_moved_teaches_nothing(world: World, learner: Learns) -> None:
    pick_id = world.director.decide(HEAD, completion()).pick_id
    world.director.picks.served_by(pick_id, "10.0.0.2:8000", 0.0)
    world.director.picks.ended(pick_id, SEEN)
    assert learner.told == []


def test_nothing_is_kept_of_a_request_when_nobody_learns() -> None:
    world = World()
    pick_id = world.director.decide(HEAD, completion()).pick_id
    ticket = world.ledger.close(pick_id, Cause.COMPLETED)
    assert ticket is not None
    assert ticket.prediction is None


def test_who_learns_beside_the_plugins_is_told_too() -> None:
    told: list[Observation] = []
    world = World(learners=[told.append])
    world.director.picks.ended(world.director.decide(HEAD, completion()).pick_id, SEEN)
    assert [observation.cached_tokens for observation in told] == [64]
    assert told[0].prediction.held == ()


def test_a_plan_that_replaces_another_has_its_own_plugins_learn(world: World, learner: Learns) -> None:
    pick_id = world.director.decide(HEAD, completion()).pick_id
    other = Learns()
    profile = Profile([], [], [(other, 1.0)], MaxScorePicker())
    world.director.use(RequestSteps(OpenAIParser(), profile))
    world.director.picks.ended(pick_id, SEEN)
    assert (len(learner.told), len(other.told)) == (0, 1)


@pytest.mark.parametrize(("response_mode", "kept"), [(NONE, False), (FULL_DUPLEX, True)])
def test_nothing_is_kept_of_a_request_whose_response_nobody_will_see(
    world: World, response_mode: int, kept: bool
) -> None:
    exchange = Exchange(world.director, ExchangeSettings(access_log=True))
    exchange.received(request_headers(modes=(BUFFERED, response_mode)), 0.0)
    exchange.received(request_body(completion()), 0.0)
    (pick_id,) = world.ledger._tickets
    ticket = world.ledger.close(pick_id, Cause.COMPLETED)
    assert ticket is not None
    assert (ticket.prediction is not None) == kept
