"""The place of an endpoint, from its pod and its node, in whatever order they come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scorers.affinity.topology import TopologyLabels
from scorers.affinity.topology_affinity import TopologyAffinityScorer, TopologyScorerParameters
from scorers.affinity.topology_extractor import TopologyExtractor
from scorers.base import Candidate, Request, Slot

HOST, RACK, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/rack", "topology.kubernetes.io/zone"


def pod(name: str, node: str = "", labels: Mapping[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {"namespace": "llm", "name": name, "labels": labels},
        "spec": {"nodeName": node, **spec},
    }


def node(name: str, **labels: str) -> dict[str, Any]:
    placed = {f"topology.kubernetes.io/{level}": place for level, place in labels.items()}
    return {"kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/os": "linux", **placed}}}


def endpoint(name: str, slot: int = 0, labels: Mapping[str, str] | None = None) -> Candidate:
    return Candidate(Slot(slot), f"10.0.0.{slot}:8000", name=f"llm/{name}-rank-0", labels=labels or {})


def test_without_objects_the_labels_of_the_endpoint_are_its_place() -> None:
    assert TopologyExtractor().labels_of(endpoint("a", labels={ZONE: "z"})) == {ZONE: "z"}


def test_a_pod_has_its_own_labels_then_its_nodes_and_its_host_at_least_by_name() -> None:
    extractor = TopologyExtractor()
    extractor.changed(pod("a", "n1", {"app": "vllm", RACK: "own"}))
    assert extractor.labels_of(endpoint("a")) == {HOST: "n1", RACK: "own"}
    extractor.changed(node("n1", rack="r1", zone="z1"))
    assert extractor.labels_of(endpoint("a")) == {HOST: "n1", RACK: "own", ZONE: "z1"}
    extractor.changed(node("n1", zone="z2"))
    assert extractor.labels_of(endpoint("a"))[ZONE] == "z2"
    extractor.removed(node("n1"))
    assert extractor.labels_of(endpoint("a")) == {HOST: "n1", RACK: "own"}
    extractor.removed(pod("a"))
    assert extractor.labels_of(endpoint("a", labels={ZONE: "z"})) == {ZONE: "z"}
    assert extractor.state() == {"pods": 0, "nodes": 0}


def test_the_host_is_the_label_then_the_node_then_the_pods_own_hostname() -> None:
    extractor = TopologyExtractor(TopologyLabels(hostname="host"))
    extractor.changed(pod("a", "n1", {"host": "h"}, hostname="own"))
    extractor.changed(pod("b", "n1", hostname="own"))
    extractor.changed(pod("c", hostname="own"))
    extractor.changed(pod("d"))
    assert [extractor.labels_of(endpoint(name)).get("host") for name in "abcd"] == ["h", "n1", "own", None]


def test_odd_objects_and_other_kinds_are_no_places() -> None:
    extractor = TopologyExtractor()
    for item in (
        {},
        {"kind": "Pod"},
        {"kind": "Node", "metadata": None},
        {"kind": "Service"},
        pod("a", labels={ZONE: ""}),
    ):
        extractor.changed(item)
        extractor.removed(item)
    assert extractor.state() == {"pods": 0, "nodes": 0}


def test_the_scorer_prefers_the_endpoint_on_the_rack_that_only_the_node_names() -> None:
    extractor = TopologyExtractor()
    for n in (1, 2):
        extractor.changed(pod(f"p{n}", f"n{n}"))
        extractor.changed(node(f"n{n}", rack=f"r{n}", zone="z"))
    scorer = TopologyAffinityScorer(TopologyScorerParameters(peer_topology_header="x-peer"))
    scorer.read_places(extractor)
    request = Request(id="1", model="m", target_model="m", headers={"x-peer": "host=n9,rack=r2,zone=z"})
    assert scorer.score(request, [endpoint("p1", 1), endpoint("p2", 2)]) == [0.05, 0.2]


NAMES, NODES = ("a", "b"), ("n1", "n2")
ITEMS = st.one_of(
    st.builds(pod, st.sampled_from(NAMES), st.sampled_from((*NODES, "")), st.sampled_from((None, {ZONE: "own"}))),
    st.builds(lambda name, zone: node(name, zone=zone), st.sampled_from(NODES), st.sampled_from(("z1", "z2"))),
)


@given(st.lists(st.tuples(ITEMS, st.booleans())))
def test_places_are_those_of_a_naive_recomputation(events: list[tuple[dict[str, Any], bool]]) -> None:
    extractor, objects = TopologyExtractor(), dict[tuple[str, str], dict[str, Any]]()
    for item, gone in events:
        key = item["kind"], item["metadata"]["name"]
        if gone:
            extractor.removed(item)
            objects.pop(key, None)
        else:
            extractor.changed(item)
            objects[key] = item
    for name in NAMES:
        one = objects.get(("Pod", name))
        place: dict[str, str] = {}
        if one is not None:
            on = one["spec"]["nodeName"]
            labels = objects.get(("Node", on), {"metadata": {"labels": {}}})["metadata"]["labels"]
            place = ({HOST: on} if on else {}) | {k: v for k, v in labels.items() if k == ZONE}
            place |= one["metadata"]["labels"] or {}
        assert extractor.labels_of(endpoint(name)) == place
