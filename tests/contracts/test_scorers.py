"""The promises that every plugin of the list keeps, whatever it computes."""

from __future__ import annotations

import inspect
from base64 import b64encode
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scorers import PLUGINS
from scorers.affinity.session_affinity import SessionAffinityFilter, SessionAffinityScorer
from scorers.affinity.topology_affinity import TopologyAffinityFilter, TopologyAffinityScorer
from scorers.base import CachedPrefix, Candidate, Filter, LoraState, Picker, Plugin, Request, Scorer, Slot, Tier
from scorers.labels.context_length import ContextLengthAware
from scorers.labels.deprecated import ByLabelFilter
from scorers.labels.endpoint_attribute import EndpointAttributeScorer
from scorers.labels.endpoint_attribute_filter import EndpointAttributeFilter
from scorers.labels.header_label import HeaderLabelAffinityScorer
from scorers.labels.selector import LabelSelectorFilter
from scorers.load.active_requests import ActiveRequestScorer
from scorers.load.latency import LatencyScorer
from scorers.load.token_load import TokenLoadScorer
from scorers.load.utilization import UtilizationFilter
from scorers.prefix.affinity_filter import PrefixAffinityFilter

LABELS = {
    "llm-d.ai/role": ["prefill", "decode", "both", "encode"],
    "llm-d.ai/context-length-range": ["0-100", "100-9000", "7", "9-1", "5-5"],
    "topology.kubernetes.io/zone": ["a", "b"],
    "kubernetes.io/hostname": ["h1", "h2"],
}
HEADERS = {
    "x-session-token": ["", "?", "bnMvZTE=", b64encode(b"10.0.0.3:8000").decode(), "é"],
    "x-session-id": ["s1", "s2", "s" * 99],
    "x-peer": ["zone=a", "host=h1,zone=b", "=,nonsense"],
    "x-zone": ["a", "b"],
    "test-epp-endpoint-selection": ["10.0.0.1", "10.0.0.2:8000, 10.0.0.3", ","],
}

# Plugins whose defaults leave something out, and other forms of their configuration.
CONFIGURED: dict[type[Plugin], list[dict[str, Any]]] = {
    ActiveRequestScorer: [{"idleThreshold": 3, "maxBusyScore": 0.5}],
    ContextLengthAware: [{"enableFiltering": True}],
    EndpointAttributeScorer: [
        {"attributeKey": "x", "algorithm": {"type": "linear_lower_is_better"}},
        {
            "attributeKey": "x",
            "algorithm": {"type": "linear_higher_is_better", "normalization": {"fixedRange": {"min": 0, "max": 3}}},
        },
    ],
    EndpointAttributeFilter: [
        {"attribute": "x", "algorithm": {"type": "threshold", "threshold": {"operator": "LessThan", "value": 1}}},
        {"attribute": "x", "onMissing": "Fail", "algorithm": {"type": "range", "range": {"min": 0, "max": 2}}},
        {"attribute": "x", "fallbackOnEmpty": True, "algorithm": {"type": "topK", "topK": {"k": 2}}},
        {"attribute": "x", "algorithm": {"type": "percentile", "percentile": {"percentile": 50}}},
    ],
    HeaderLabelAffinityScorer: [{"headerName": "x-zone", "labelKey": "topology.kubernetes.io/zone"}],
    LabelSelectorFilter: [
        {"matchLabels": {"llm-d.ai/role": "decode"}},
        {"matchExpressions": [{"key": "llm-d.ai/role", "operator": "NotIn", "values": ["decode", "both"]}]},
        {"matchExpressions": [{"key": "llm-d.ai/role", "operator": "Exists"}]},
    ],
    ByLabelFilter: [{"label": "llm-d.ai/role", "validValues": ["decode"], "allowsNoLabel": True}],
    LatencyScorer: [{"compositeKVWeight": 0, "compositeQueueWeight": 0}, {"compositePrefixWeight": 1e308}],
    PrefixAffinityFilter: [{"maxTTFTPenaltyMs": 0}, {"affinityThreshold": 0.3, "maxTTFTPenaltyMs": 0.1}],
    SessionAffinityScorer: [{"strategy": "session_id"}],
    SessionAffinityFilter: [{"strategy": "session_id"}],
    TokenLoadScorer: [{"queueThresholdTokens": 100}],
    TopologyAffinityScorer: [{"peerTopologyHeader": "X-Peer"}],
    TopologyAffinityFilter: [{"peerTopologyHeader": "X-Peer", "minAffinity": "zone"}],
    UtilizationFilter: [
        {"conditions": [{"metric": "waiting-queue", "maxValue": 5}]},
        {"conditions": [{"metric": "kv-cache-utilization", "maxValue": 0.5}], "fallbackOnEmpty": True},
    ],
}


def instances(seam: type[Any]) -> list[Any]:
    """Return factories of every plugin of that kind, with default and with other parameters."""
    found = []
    for kind in PLUGINS:
        if not issubclass(kind, seam):
            continue
        found.append(pytest.param(kind, id=kind.type_name))
        for i, written in enumerate(CONFIGURED.get(kind, ())):
            parameters = msgspec.convert(written, kind.Parameters)
            found.append(pytest.param(partial(kind, parameters), id=f"{kind.type_name}-{i}"))
    return found


SCORERS = instances(Scorer)
FILTERS = instances(Filter)
PICKERS = [kind for kind in PLUGINS if issubclass(kind, Picker)]

adapters = st.frozensets(st.sampled_from(["a", "b", "c"]))


labels = st.fixed_dictionaries({}, optional={key: st.sampled_from(values) for key, values in LABELS.items()})
headers = st.fixed_dictionaries({}, optional={key: st.sampled_from(values) for key, values in HEADERS.items()})
attributes = st.fixed_dictionaries({}, optional={"x": st.floats() | st.integers(-3, 3).map(float)})


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
            in_flight_tokens=draw(st.integers(0, 10**7)),
            name=draw(st.sampled_from(["", f"ns/e{slot}"])),
            labels=draw(labels),
            attributes=draw(attributes),
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
    return Request(
        id="r",
        model="m",
        target_model=draw(st.sampled_from(["m", "a", "b"])),
        prompt_tokens=draw(st.integers(1, 10_000)),
        headers=draw(headers),
        received_s=draw(st.floats(0, 1e6)),
        cached=cached,
    )


@pytest.mark.parametrize("kind", PLUGINS)
def test_a_plugin_can_be_made_with_no_arguments(kind: type[Plugin]) -> None:
    assert kind().name == kind.type_name


@pytest.mark.parametrize("kind", PLUGINS)
def test_a_plugin_refuses_an_unknown_parameter(kind: type[Plugin]) -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field `surprise`"):
        msgspec.convert({"surprise": 1}, kind.Parameters)


@pytest.mark.parametrize("kind", PLUGINS)
def test_a_plugin_is_documented(kind: type[Plugin]) -> None:
    assert inspect.getdoc(kind)


def test_type_names_are_unique() -> None:
    assert len({kind.type_name for kind in PLUGINS}) == len(PLUGINS)


@pytest.mark.parametrize("kind", SCORERS)
@given(request=requests(), candidates=candidate_lists())
@settings(max_examples=20, deadline=None)
def test_a_scorer_gives_every_candidate_a_score_from_0_to_1(
    kind: Callable[[], Scorer], request: Request, candidates: list[Candidate]
) -> None:
    scores = kind().score(request, candidates)
    assert len(scores) == len(candidates)
    assert all(isinstance(score, float) and 0.0 <= score <= 1.0 for score in scores)


@pytest.mark.parametrize("kind", SCORERS)
@given(request=requests(), candidates=candidate_lists(), data=st.data())
@settings(max_examples=20, deadline=None)
def test_the_order_of_candidates_does_not_matter(
    kind: Callable[[], Scorer], request: Request, candidates: list[Candidate], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(candidates))))
    shuffled = [candidates[i] for i in order]
    scorer = kind()
    before = scorer.score(request, candidates)
    assert scorer.score(request, shuffled) == [before[i] for i in order]


@pytest.mark.parametrize("kind", SCORERS)
@given(request=requests(), candidates=candidate_lists(), picks=st.lists(st.integers(0, 99), max_size=8))
@settings(max_examples=20, deadline=None)
def test_a_scorer_keeps_its_promises_after_picks(
    kind: Callable[[], Scorer], request: Request, candidates: list[Candidate], picks: list[int]
) -> None:
    scorer = kind()
    for pick in picks:
        scores = scorer.score(request, candidates)
        assert all(0.0 <= score <= 1.0 for score in scores)
        scorer.picked(request, candidates[pick % len(candidates)])
    assert len(scorer.score(request, candidates)) == len(candidates)


@pytest.mark.parametrize("kind", SCORERS)
@given(request=requests(), candidates=candidate_lists())
@settings(max_examples=20, deadline=None)
def test_scoring_changes_neither_the_request_nor_the_candidates(
    kind: Callable[[], Scorer], request: Request, candidates: list[Candidate]
) -> None:
    before = repr((request, candidates))
    kind().score(request, candidates)
    request.scratch.clear()  # a plugin's own place
    assert repr((request, candidates)) == before


@pytest.mark.parametrize("kind", FILTERS)
@given(request=requests(), candidates=candidate_lists(), picks=st.lists(st.integers(0, 99), max_size=4))
@settings(max_examples=20, deadline=None)
def test_a_filter_keeps_some_of_the_candidates_in_their_order_and_changes_nothing(
    kind: Callable[[], Filter], request: Request, candidates: list[Candidate], picks: list[int]
) -> None:
    narrower = kind()
    before = repr((request, candidates))
    for pick in [*picks, 0]:
        kept = list(narrower.keep(request, candidates))
        places = [next(i for i, c in enumerate(candidates) if c is one) for one in kept]
        assert places == sorted(set(places)), "each once, in the given order, none of its own"
        assert list(narrower.keep(request, tuple(kept))) == kept or not kept or fills_up_again(narrower)
        narrower.picked(request, candidates[pick % len(candidates)])
        assert not request.scratch, "a pick takes out what was kept for it"
    assert repr((request, candidates)) == before


def fills_up_again(narrower: Filter) -> bool:
    """Whether keeping a candidate depends on the other candidates."""
    return isinstance(narrower, EndpointAttributeFilter)


@pytest.mark.parametrize("kind", FILTERS)
def test_a_filter_of_no_candidates_keeps_none(kind: Callable[[], Filter]) -> None:
    assert list(kind().keep(Request(id="r", model="m", target_model="m"), ())) == []


@pytest.mark.parametrize("kind", [*FILTERS, *SCORERS])
@given(request=requests(), candidates=candidate_lists())
@settings(max_examples=20, deadline=None)
def test_response_headers_are_valid(kind: Callable[[], Plugin], request: Request, candidates: list[Candidate]) -> None:
    plugin = kind()
    headers = plugin.response_headers(request, candidates[0])
    assert plugin.sets_response_headers or not headers
    assert all(name == name.lower() and value.isascii() and value.isprintable() for name, value in headers.items())


@pytest.mark.parametrize("kind", PICKERS)
@given(candidates=candidate_lists(), data=st.data(), wanted=st.integers(1, 20))
@settings(max_examples=20, deadline=None)
def test_a_picker_returns_distinct_candidates_and_at_most_as_many_as_configured(
    kind: type[Picker], candidates: Sequence[Candidate], data: st.DataObject, wanted: int
) -> None:
    scores = data.draw(st.lists(st.floats(-1, 10), min_size=len(candidates), max_size=len(candidates)))
    picker = kind(msgspec.convert({"maxNumOfEndpoints": wanted}, kind.Parameters))
    picks = picker.pick(candidates, scores)
    assert len(picks) == min(wanted, len(candidates)) >= 1
    assert len(set(picks)) == len(picks)
    assert set(picks) <= set(range(len(candidates)))
