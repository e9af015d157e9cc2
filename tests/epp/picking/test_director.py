"""From a request to a decision, and from its end back to the ledger."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.decision import Cause, Outcome, RequestHead, RequestLabels, Usage
from epp.errors import BadRequest, NoEndpoints, Saturated
from epp.parsers import ByPath, OpenAIParser, PassthroughParser
from epp.picking.director import Director
from epp.picking.profile import Profile
from epp.picking.request_steps import RequestSteps
from epp.pool.candidates import allowed
from epp.pool.pool import EngineMetrics
from scorers.base import CachedPrefix, Candidate, NoParameters, Producer, Request, Slot, Tier
from scorers.load.queue import QueueScorer
from scorers.pickers import MaxScorePicker, PickerParameters
from tests.epp.doubles import Only, World, candidate, completion


def head(subset: frozenset[str] | None = None, /, **headers: str) -> RequestHead:
    named = {":path": "/v1/completions"} | {name.replace("_", "-"): value for name, value in headers.items()}
    return RequestHead(named, subset)


def test_a_decision_names_the_endpoint_and_is_counted_there() -> None:
    world = World()
    decision = world.director.decide(head(x_request_id="r1"), completion("x" * 400, stream=True))
    assert decision.destination == "10.0.0.1:8000"
    assert decision.request is not None
    assert (decision.request.id, decision.request.streaming) == ("r1", True)
    assert [c.in_flight for c in world.pool.candidates()] == [1, 0]
    assert world.ledger.picks == [100]
    assert world.telemetry.decisions == ["10.0.0.1:8000"]
    assert ("Scorer", "queue-scorer", "queue-scorer") in world.telemetry.plugins


def test_fallbacks_follow_the_pick() -> None:
    profile = Profile([], [], [(QueueScorer(), 1.0)], MaxScorePicker(PickerParameters(max_num_of_endpoints=2)))
    decision = World(profile=profile).director.decide(head(), completion())
    assert decision.destination == "10.0.0.1:8000,10.0.0.2:8000"


def test_a_request_without_an_id_gets_one() -> None:
    world = World()
    ids = {world.director.decide(head(), completion()).request.id for _ in range(2)}  # type: ignore[union-attr]
    assert len(ids) == 2


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ("x_llm_d_inference_fairness_id", "x_gateway_inference_fairness_id"),
        ("x_llm_d_model_name_rewrite", "x_gateway_model_name_rewrite"),
    ],
)
def test_of_a_header_and_its_old_name_the_new_one_wins(new: str, old: str) -> None:
    def said(**headers: str) -> str:
        labels = World().director.decide(head(**headers), completion()).labels
        return labels.fairness_id if "fairness" in new else labels.target_model_name

    assert said(**{new: "a", old: "b"}) == "a"
    assert said(**{old: "b"}) == "b"
    assert said(**{new: "", old: "b"}) == "b"


def test_the_labels_name_both_models_and_the_flow() -> None:
    decision = World().director.decide(head(x_llm_d_model_name_rewrite="lora"), completion())
    assert decision.labels == RequestLabels("m", "lora", "default-flow", 0)
    assert decision.body == completion().replace(b'"m"', b'"lora"')


def test_what_the_endpoint_holds_need_not_be_computed() -> None:
    class Holds(Producer[NoParameters]):
        type_name = "holds"

        def produce(self, request: Request, candidates: object) -> None:
            request.cached["gpu"] = CachedPrefix(Tier.GPU, 100, {Slot(0): 10})
            request.cached["cpu"] = CachedPrefix(Tier.CPU, 100, {Slot(0): 64, Slot(1): 100})

        def picked(self, request: Request, candidate: Candidate) -> None:
            assert candidate.slot == 0

    world = World(profile=Profile([], [Holds()], [(QueueScorer(), 1.0)], MaxScorePicker()))
    world.director.decide(head(), completion("x" * 400))
    assert world.ledger.picks == [36]


def test_requests_do_not_share_what_producers_wrote() -> None:
    world = World()
    first, second = (world.director.decide(head(), completion()).request for _ in range(2))
    assert first is not None
    assert second is not None
    first.cached["x"] = CachedPrefix(Tier.GPU, 1, {})
    assert second.cached == {}


@pytest.mark.parametrize(
    ("world", "said", "refusal"),
    [
        (World(), (head(), b"{"), BadRequest),
        (World(endpoints=0), (head(), completion()), NoEndpoints),
        (World(), (head(frozenset()), completion()), NoEndpoints),
        (World(profile=Profile([Only("nobody")], [], [], MaxScorePicker())), (head(), completion()), Saturated),
    ],
)
def test_a_refusal_counts_nothing_and_is_reported(
    world: World, said: tuple[RequestHead, bytes], refusal: type[BadRequest]
) -> None:
    with pytest.raises(refusal):
        world.director.decide(*said)
    assert world.ledger.picks == []
    assert world.telemetry.refusals == [refusal.code]


def test_a_request_without_a_body_goes_to_any_endpoint_of_its_subset() -> None:
    world = World()
    seen = {world.director.decide_bodiless(head()).destination for _ in range(100)}
    assert seen == {"10.0.0.1:8000", "10.0.0.2:8000"}
    assert {world.director.decide_bodiless(head(frozenset({"10.0.0.2"}))).destination for _ in range(20)} == {
        "10.0.0.2:8000"
    }
    with pytest.raises(NoEndpoints, match="failed to find endpoint candidates"):
        world.director.decide_bodiless(head(frozenset({"10.0.0.3:8000"})))
    assert len(world.ledger) == 120


def test_a_pick_ends_once() -> None:
    world = World()
    pick_id = world.director.decide(head(), completion()).pick_id
    assert world.director.picks.ended(pick_id, Outcome(Cause.COMPLETED))
    assert not world.director.picks.ended(pick_id, Outcome(Cause.COMPLETED))
    assert not world.director.picks.ended(999, Outcome(Cause.COMPLETED))
    assert len(world.telemetry.outcomes) == 1


# Subsets.

SIX = tuple(
    candidate(i, address=a)
    for i, a in enumerate(("10.0.0.1:80", "10.0.0.1:81", "10.0.0.2:80", "[::1]:80", "[::1]:81", "[::1:80]:80"))
)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("10.0.0.1:80", ["10.0.0.1:80"]),
        ("10.0.0.1", ["10.0.0.1:80", "10.0.0.1:81"]),
        ("[::1]:80", ["[::1]:80"]),
        ("[::1]", ["[::1]:80", "[::1]:81"]),
        ("::1", ["[::1]:80", "[::1]:81"]),
    ],
)
def test_an_entry_matches_by_address_and_port_or_any_port_of_its_address(entry: str, expected: list[str]) -> None:
    assert [c.address for c in allowed(SIX, frozenset({entry}))] == expected


@pytest.mark.parametrize("entry", ["10.0.0.1:8", "10.0.0", "0.0.0.1:80", "80", "", ":", "[]"])
def test_an_entry_that_names_nobody_allows_nobody(entry: str) -> None:
    with pytest.raises(NoEndpoints):
        allowed(SIX, frozenset({entry}))


@given(st.sets(st.sampled_from([c.address for c in SIX]), min_size=1))
def test_the_whole_address_of_every_endpoint_names_it_alone(chosen: set[str]) -> None:
    assert {c.address for c in allowed(SIX, frozenset(chosen))} == chosen


def test_an_endpoint_whose_engine_does_not_answer_is_the_last_resort() -> None:
    world = World()
    dead, alive = world.pool.candidates()
    for slot in (dead.slot, alive.slot):
        world.pool.observe(slot, EngineMetrics(), 1.0)
    world.pool.mark_stale(dead.slot)
    chosen = {world.director.decide(head(), completion()).destination for _ in range(8)}
    assert chosen == {alive.address}
    assert world.director.decide_bodiless(head()).destination == alive.address
    world.pool.mark_stale(alive.slot)
    assert world.director.decide(head(), completion()).destination in (dead.address, alive.address)


def test_an_answer_from_another_endpoint_than_the_pick_is_counted() -> None:
    world = World()
    pick = world.director.decide(head(), completion())
    world.director.picks.ended(pick.pick_id, Outcome(Cause.COMPLETED, served_by=pick.destination))
    other = {"10.0.0.1:8000": "10.0.0.2:8000", "10.0.0.2:8000": "10.0.0.1:8000"}
    assert world.director.picks.served_elsewhere == 0
    pick = world.director.decide(head(), completion())
    world.director.picks.ended(pick.pick_id, Outcome(Cause.COMPLETED, served_by=other[pick.destination]))
    assert world.director.picks.served_elsewhere == 1


def test_what_the_passthrough_parser_reads_is_picked_by_load_alone() -> None:
    world = World()
    rerank = RequestHead({":path": "/v1/rerank"})
    with pytest.raises(BadRequest, match="no parser for path"):
        world.director.decide(rerank, b"whatever")
    by_load = Profile([], [], [(QueueScorer(), 1.0)], MaxScorePicker())
    parsers = ByPath([PassthroughParser(), OpenAIParser()])
    open_to_all = Director(RequestSteps(parsers, by_load), world.pool, world.ledger, world.telemetry)
    decision = open_to_all.decide(rerank, b"\xff not JSON")
    assert (decision.destination, decision.body) == ("10.0.0.1:8000", None), "the one without a queue"
    assert (decision.labels.model_name, decision.labels.target_model_name) == ("", "")
    with pytest.raises(BadRequest):
        open_to_all.decide(head(), b"\xff not JSON")


def test_the_real_end_of_a_pick_that_was_taken_back_is_reported_once() -> None:
    world = World()
    pick = world.director.decide(head(), completion())
    assert world.director.picks.ended(pick.pick_id, Outcome(Cause.RECONCILED))
    assert not world.ledger
    told = Outcome(Cause.COMPLETED, duration_s=25.0, usage=Usage(completion_tokens=7))
    assert world.director.picks.ended(pick.pick_id, told)
    assert not world.director.picks.ended(pick.pick_id, told)
    assert world.telemetry.outcomes == [Outcome(Cause.RECONCILED), told]
    assert world.ledger.released == {Cause.RECONCILED: 1}
