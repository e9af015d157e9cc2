"""Filters by cached prefix, by utilization, by topology, and for tests."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from scorers.affinity.topology import Level, read_peer
from scorers.affinity.topology_affinity import (
    TopologyAffinityFilter,
    TopologyAffinityScorer,
    TopologyFilterParameters,
    TopologyScorerParameters,
)
from scorers.base import CachedPrefix, Candidate, Filter, Request, Slot, Tier
from scorers.labels.header_testing import HEADER, HeaderTestingFilter, HeaderTestingParameters
from scorers.load.utilization import UtilizationFilter, UtilizationParameters
from scorers.prefix.affinity_filter import PrefixAffinityFilter, PrefixAffinityParameters


def request(headers: dict[str, str] | None = None, **held: dict[int, int]) -> Request:
    cached = {
        name: CachedPrefix(Tier.GPU, 100, {Slot(slot): tokens for slot, tokens in by_slot.items()})
        for name, by_slot in held.items()
    }
    return Request(id="r", model="m", target_model="m", headers=headers or {}, cached=cached)


def pool(*each: dict[str, Any]) -> list[Candidate]:
    return [Candidate(**{"slot": Slot(i), "address": f"10.0.0.{i}:8000"} | one) for i, one in enumerate(each)]


def kept(narrower: Filter[Any], asked: Request, candidates: list[Candidate]) -> list[int]:
    return [c.slot for c in narrower.keep(asked, candidates)]


def affinity(random: Random | None = None, **written: Any) -> PrefixAffinityFilter:
    return PrefixAffinityFilter(msgspec.convert(written, PrefixAffinityParameters), random=random)


# prefix-cache-affinity-filter

THREE = pool({}, {}, {})


def test_those_that_hold_the_threshold_are_kept() -> None:
    assert kept(affinity(), request(gpu={0: 79, 1: 80, 2: 100}), THREE) == [1, 2]
    assert kept(affinity(affinityThreshold=1.0), request(gpu={0: 79, 1: 80, 2: 100}), THREE) == [2]


def test_all_candidates_are_kept_if_none_holds_enough() -> None:
    assert kept(affinity(), request(gpu={0: 79}), THREE) == [0, 1, 2]
    assert kept(affinity(), request(), THREE) == [0, 1, 2]
    assert kept(affinity(affinityThreshold=0), request(gpu={0: 100}), THREE) == [0, 1, 2]


def test_any_tier_counts_unless_one_producer_is_named() -> None:
    asked = request(gpu={0: 100}, cpu={1: 100})
    assert kept(affinity(), asked, THREE) == [0, 1]
    assert kept(affinity(prefixMatchInfoProducerName="cpu"), asked, THREE) == [1]


def test_a_request_leaves_when_waiting_costs_more_than_the_penalty() -> None:
    # 1000 tokens a second and 2 s: 2000 tokens more than at the best other endpoint.
    narrower = affinity(maxTTFTPenaltyMs=2000, peakPrefillThroughput=1000)
    asked = request(gpu={0: 100, 1: 100})
    at_the_limit = pool({"in_flight_tokens": 9000}, {"in_flight_tokens": 2500}, {"in_flight_tokens": 500})
    beyond = pool({"in_flight_tokens": 9000}, {"in_flight_tokens": 2501}, {"in_flight_tokens": 500})
    assert kept(narrower, asked, at_the_limit) == [0, 1]
    assert kept(narrower, asked, beyond) == [0, 1, 2]
    assert kept(affinity(maxTTFTPenaltyMs=0), asked, beyond) == [0, 1]


def test_by_default_the_penalty_is_18_seconds_of_15928_tokens() -> None:
    limit = 18 * 15_928
    asked = request(gpu={0: 100})
    assert kept(affinity(), asked, pool({"in_flight_tokens": limit}, {})) == [0]
    assert kept(affinity(), asked, pool({"in_flight_tokens": limit + 1}, {})) == [0, 1]


def test_exploring_keeps_everything_as_often_as_written() -> None:
    asked = request(gpu={0: 100})
    narrower = affinity(Random(1), explorationProbability=0.25)
    explored = sum(len(narrower.keep(asked, THREE)) == 3 for _ in range(1000))
    assert 200 < explored < 300
    assert len(affinity(Random(1), explorationProbability=1).keep(asked, THREE)) == 3


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ({"ttftSource": "latencyPredictor"}, "^ttftSource: nothing predicts latency here; write prefillThroughput"),
        ({"latencyPredictionInfoProducerName": "p"}, "^latencyPredictionInfoProducerName: nothing predicts"),
        ({"affinityThreshold": 1.1}, "affinityThreshold is 1.1; it must be from 0 to 1"),
        ({"explorationProbability": -0.1}, "explorationProbability is -0.1; it must be from 0 to 1"),
        ({"maxTTFTPenaltyMs": -1}, "maxTTFTPenaltyMs is -1.0; it must be at least 0"),
        ({"peakPrefillThroughput": 0}, "^peakPrefillThroughput: must be above 0, or maxTTFTPenaltyMs 0"),
    ],
)
def test_parameters_out_of_range_are_refused(written: dict[str, Any], sentence: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=sentence):
        affinity(**written)


# utilization-filter


@pytest.mark.parametrize(
    ("metric", "field"),
    [
        ("active-requests", "in_flight"),
        ("running-requests", "running"),
        ("waiting-queue", "waiting"),
        ("kv-cache-utilization", "kv_usage"),
    ],
)
def test_at_most_the_value_is_kept(metric: str, field: str) -> None:
    written = msgspec.convert({"conditions": [{"metric": metric, "maxValue": 0.5}]}, UtilizationParameters)
    assert kept(UtilizationFilter(written), request(), pool({field: 0}, {field: 0.5}, {field: 1})) == [0, 1]


def test_all_conditions_must_hold_and_an_empty_result_may_fall_back() -> None:
    conditions = [{"metric": "waiting-queue", "maxValue": 0}, {"metric": "running-requests", "maxValue": 1}]
    strict, lenient = (
        UtilizationFilter(
            msgspec.convert({"conditions": conditions, "fallbackOnEmpty": falls_back}, UtilizationParameters)
        )
        for falls_back in (False, True)
    )
    some, none = pool({"running": 2}, {"running": 1}, {"waiting": 1}), pool({"running": 2}, {"waiting": 1})
    assert kept(strict, request(), some) == kept(lenient, request(), some) == [1]
    assert (kept(strict, request(), none), kept(lenient, request(), none)) == ([], [0, 1])


def test_a_utilization_filter_without_conditions_is_refused() -> None:
    with pytest.raises(ValueError, match="conditions: missing"):
        UtilizationFilter(UtilizationParameters())


# header-based-testing-filter


@pytest.mark.parametrize(
    ("value", "slots"),
    [
        (None, []),
        (" , ", []),
        ("10.0.0.1", [1]),
        ("10.0.0.1:8000", [1]),
        ("10.0.0.1:9", []),
        ("256.256.256.256", []),
        (" 10.0.0.2:8000 ,10.0.0.0", [0, 2]),
        ("::1", [3, 4]),
        ("[::1]", [3, 4]),
        ("[::1]:81", [4]),
    ],
)
def test_the_header_names_endpoints_by_address_or_by_address_and_port(value: str | None, slots: list[int]) -> None:
    candidates = pool({}, {}, {}, {"address": "[::1]:80"}, {"address": "[::1]:81"})
    assert kept(HeaderTestingFilter(), request({} if value is None else {HEADER: value}), candidates) == slots


def test_without_the_header_every_endpoint_is_kept_where_the_parameter_tells_so() -> None:
    lenient = HeaderTestingFilter(HeaderTestingParameters(keep_without_header=True))
    assert kept(lenient, request(), pool({}, {})) == [0, 1]
    assert kept(lenient, request({HEADER: "10.0.0.1"}), pool({}, {})) == [1]
    assert kept(lenient, request({HEADER: "10.0.0.9"}), pool({}, {})) == []


# Topology

SITES = pool(
    {"labels": {"kubernetes.io/hostname": "h1", "topology.kubernetes.io/rack": "r1"}},
    {"labels": {"kubernetes.io/hostname": "h2", "topology.kubernetes.io/rack": "r1"}},
    {"labels": {"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "g"}},
    {"labels": {"topology.kubernetes.io/region": "g"}},
    {"labels": {}},
)
NEAR = {"x-peer-topology": "host=h1,rack=r1,zone=z,region=g"}


def test_the_nearer_to_the_peer_the_higher_the_score() -> None:
    scorer = TopologyAffinityScorer(TopologyScorerParameters("X-Peer-Topology"))
    assert scorer.score(request(NEAR), SITES) == [1.0, 0.2, 0.05, 0.02, 0.0]
    assert scorer.score(request(), SITES) == [0.0] * 5
    assert TopologyAffinityScorer().score(request(NEAR), SITES) == [0.0] * 5


@pytest.mark.parametrize(
    ("level", "slots"),
    [(Level.HOST, [0]), (Level.RACK, [0, 1]), (Level.ZONE, [0, 1, 2]), (Level.REGION, [0, 1, 2, 3])],
)
def test_those_near_enough_are_kept(level: Level, slots: list[int]) -> None:
    narrower = TopologyAffinityFilter(TopologyFilterParameters("x-peer-topology", min_affinity=level))
    assert kept(narrower, request(NEAR), SITES) == slots


def test_without_a_peer_or_without_neighbours_everything_is_kept() -> None:
    narrower = TopologyAffinityFilter(TopologyFilterParameters("x-peer-topology"))
    for headers in ({}, {"x-peer-topology": ""}, {"x-peer-topology": "host=elsewhere"}, {"x-peer-topology": "host="}):
        assert kept(narrower, request(headers), SITES) == [0, 1, 2, 3, 4]


def test_a_peers_place_is_read_as_far_as_it_is_understood() -> None:
    assert read_peer("zone=z,planet=earth,host,rack=") == {Level.ZONE: "z"}
