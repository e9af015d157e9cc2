"""What every plugin of the list promises, whatever it computes."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scorers import PLUGINS
from scorers.base import CachedPrefix, Candidate, LoraState, Picker, Plugin, Request, Scorer, Slot, Tier

SCORERS = [kind for kind in PLUGINS if issubclass(kind, Scorer)]
PICKERS = [kind for kind in PLUGINS if issubclass(kind, Picker)]

adapters = st.frozensets(st.sampled_from(["a", "b", "c"]))


@st.composite
def candidate_lists(draw: st.DrawFn, min_size: int = 1) -> list[Candidate]:
    slots = draw(st.lists(st.integers(0, 63), min_size=min_size, max_size=12, unique=True))
    return [
        Candidate(
            slot=Slot(slot),
            address=f"10.0.0.{slot}:8000",
            waiting=draw(st.integers(0, 1000)),
            running=draw(st.integers(0, 1000)),
            kv_usage=draw(st.floats(0, 1)),
            in_flight=draw(st.integers(0, 100)),
            fresh=draw(st.booleans()),
            lora=LoraState(draw(adapters), draw(adapters), draw(st.integers(0, 4))),
        )
        for slot in slots
    ]


@st.composite
def requests(draw: st.DrawFn) -> Request:
    total = draw(st.integers(0, 100))
    held = st.dictionaries(st.integers(0, 63).map(Slot), st.integers(1, max(1, total)), max_size=6)
    cached = {
        name: CachedPrefix(tier, total, draw(held) if total else {})
        for name, tier in (("approx-prefix-cache-producer", Tier.GPU), ("cpu-prefix-cache-producer", Tier.CPU))
        if draw(st.booleans())
    }
    return Request(id="r", model="m", target_model=draw(st.sampled_from(["m", "a", "b"])), cached=cached)


@pytest.mark.parametrize("kind", PLUGINS)
def test_a_plugin_can_be_made_with_no_arguments(kind: type[Plugin]) -> None:
    assert kind().name == kind.type_name


@pytest.mark.parametrize("kind", PLUGINS)
def test_a_plugin_refuses_a_parameter_it_does_not_know(kind: type[Plugin]) -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field `surprise`"):
        msgspec.convert({"surprise": 1}, kind.Parameters)


@pytest.mark.parametrize("kind", PLUGINS)
def test_a_plugin_says_what_it_does(kind: type[Plugin]) -> None:
    assert inspect.getdoc(kind)


def test_type_names_are_unique() -> None:
    assert len({kind.type_name for kind in PLUGINS}) == len(PLUGINS)


@pytest.mark.parametrize("kind", SCORERS)
@given(request=requests(), candidates=candidate_lists())
@settings(max_examples=60, deadline=None)
def test_a_scorer_gives_every_candidate_a_score_from_0_to_1(
    kind: type[Scorer], request: Request, candidates: list[Candidate]
) -> None:
    scores = kind().score(request, candidates)
    assert len(scores) == len(candidates)
    assert all(isinstance(score, float) and 0.0 <= score <= 1.0 for score in scores)


@pytest.mark.parametrize("kind", SCORERS)
@given(request=requests(), candidates=candidate_lists(), data=st.data())
@settings(max_examples=60, deadline=None)
def test_the_order_of_candidates_does_not_matter(
    kind: type[Scorer], request: Request, candidates: list[Candidate], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(candidates))))
    shuffled = [candidates[i] for i in order]
    scorer = kind()
    before = scorer.score(request, candidates)
    assert scorer.score(request, shuffled) == [before[i] for i in order]


@pytest.mark.parametrize("kind", SCORERS)
@given(request=requests(), candidates=candidate_lists(), picks=st.lists(st.integers(0, 99), max_size=8))
@settings(max_examples=60, deadline=None)
def test_a_scorer_keeps_its_promises_after_picks(
    kind: type[Scorer], request: Request, candidates: list[Candidate], picks: list[int]
) -> None:
    scorer = kind()
    for pick in picks:
        scores = scorer.score(request, candidates)
        assert all(0.0 <= score <= 1.0 for score in scores)
        scorer.picked(request, candidates[pick % len(candidates)])
    assert len(scorer.score(request, candidates)) == len(candidates)


@pytest.mark.parametrize("kind", SCORERS)
@given(request=requests(), candidates=candidate_lists())
@settings(max_examples=30, deadline=None)
def test_scoring_changes_neither_the_request_nor_the_candidates(
    kind: type[Scorer], request: Request, candidates: list[Candidate]
) -> None:
    before = repr((request, candidates))
    kind().score(request, candidates)
    assert repr((request, candidates)) == before


@pytest.mark.parametrize("kind", PICKERS)
@given(candidates=candidate_lists(), data=st.data(), wanted=st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_a_picker_names_distinct_candidates_and_at_most_as_many_as_asked(
    kind: type[Picker], candidates: Sequence[Candidate], data: st.DataObject, wanted: int
) -> None:
    scores = data.draw(st.lists(st.floats(0, 10), min_size=len(candidates), max_size=len(candidates)))
    picker = kind(msgspec.convert({"maxNumOfEndpoints": wanted}, kind.Parameters))
    picks = picker.pick(candidates, scores)
    assert len(picks) == min(wanted, len(candidates))
    assert len(set(picks)) == len(picks)
    assert set(picks) <= set(range(len(candidates)))
