"""Which endpoints a pod has, and when."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from epp.discovery.pods import ACTIVE_PORTS, container_start, endpoints_of
from epp.kube.objects import Decoder, Pod
from tests.epp.discovery.pods import ACTIVE, pod, written

OLDER = ACTIVE_PORTS[1]


def ports(item: Pod, *pool: int) -> list[int]:
    return [int(one.endpoint.address.rpartition(":")[2]) for one in endpoints_of(item, pool)]


def test_a_ready_pod_is_one_endpoint_for_each_port_of_its_pool() -> None:
    found = endpoints_of(pod(labels={"app": "vllm", "llm-d.ai/role": "decode"}), (8000, 8001))
    assert [(one.endpoint.address, one.endpoint.name) for one in found] == [
        ("10.0.0.1:8000", "default/vllm-0-rank-0"),
        ("10.0.0.1:8001", "default/vllm-0-rank-1"),
    ]
    assert found[0].endpoint.labels == {"app": "vllm", "llm-d.ai/role": "decode"}


def test_an_ipv6_address_stands_in_brackets() -> None:
    assert endpoints_of(pod(ip="fd00::7"), (8000,))[0].endpoint.address == "[fd00::7]:8000"


@pytest.mark.parametrize(
    "fields",
    [
        {"ip": ""},
        {"phase": "Succeeded"},
        {"phase": "Failed"},
        {"deleted": "2026-11-22T11:00:00Z"},
    ],
)
def test_a_pod_that_takes_no_requests_any_more_has_no_endpoint(fields: dict[str, Any]) -> None:
    assert endpoints_of(pod(**fields), (8000,)) == ()


@pytest.mark.parametrize(("condition", "ready"), [("True", True), ("False", False), ("Unknown", False)])
def test_the_condition_of_a_pod_makes_its_endpoint_ready(condition: str, ready: bool) -> None:
    (only,) = endpoints_of(pod(ready=condition), (8000,))
    assert only.ready is ready
    assert only.endpoint == endpoints_of(pod(), (8000,))[0].endpoint, "it is the same endpoint"


def test_a_pod_without_conditions_or_status_has_no_endpoint() -> None:
    assert endpoints_of(msgspec.json.decode(b'{"metadata": {"name": "x"}}', type=Pod), (8000,)) == ()


@pytest.mark.parametrize(
    ("text", "active"),
    [
        ("8000", [8000]),
        (" 8001 , 8000 ", [8000, 8001]),
        ("8000,8000", [8000]),
        ("", []),
        (",", []),
        ("8000,x", [8000]),
        ("-8000", []),
        ("9000", []),
        ("8000.0", []),
        ("٨٠٠٠", []),
        ("8" * 100_000, []),
    ],
)
def test_the_annotation_limits_the_ports(text: str, active: list[int]) -> None:
    assert ports(pod(annotations={ACTIVE: text}), 8000, 8001) == active


def test_of_both_annotations_the_newer_one_counts() -> None:
    assert ports(pod(annotations={OLDER: "8001"}), 8000, 8001) == [8001]
    assert ports(pod(annotations={OLDER: "8001", ACTIVE: "8000"}), 8000, 8001) == [8000]
    assert ports(pod(annotations={OLDER: "8001", ACTIVE: ""}), 8000, 8001) == []


def test_a_port_keeps_its_rank_when_others_are_not_active() -> None:
    (only,) = endpoints_of(pod(annotations={ACTIVE: "8001"}), (8000, 8001))
    assert only.endpoint.name == "default/vllm-0-rank-1"
    assert only.endpoint.identity.endswith(" 1")


def test_a_container_that_started_again_in_place_is_another_endpoint() -> None:
    (before,) = endpoints_of(pod(), (8000,))
    (after,) = endpoints_of(pod(started="2026-11-22T10:30:00Z"), (8000,))
    assert before.endpoint.address == after.endpoint.address
    assert before.endpoint.identity != after.endpoint.identity


def test_a_new_pod_at_an_old_address_is_another_endpoint() -> None:
    (before,) = endpoints_of(pod(), (8000,))
    (after,) = endpoints_of(pod(uid="another"), (8000,))
    assert before.endpoint.identity != after.endpoint.identity


def test_a_sidecar_that_starts_again_changes_nothing() -> None:
    data = written(declared=(8000,))
    data["spec"]["containers"].append({"name": "proxy", "ports": [{"containerPort": 15001}]})
    states = data["status"]["containerStatuses"]
    states.append({"name": "proxy", "state": {"running": {"startedAt": "2026-11-22T10:00:11Z"}}})
    before = container_start(Decoder(Pod).decode(msgspec.json.encode(data)), 8000)
    states[1]["state"]["running"]["startedAt"] = "2026-11-22T12:00:00Z"
    assert container_start(Decoder(Pod).decode(msgspec.json.encode(data)), 8000) == before is not None


def test_the_only_container_has_the_port_though_it_declares_none() -> None:
    assert container_start(pod(declared=()), 8000) is not None


def test_of_several_containers_without_the_port_none_is_guessed() -> None:
    data = written(declared=())
    data["spec"]["containers"].append({"name": "proxy"})
    assert container_start(Decoder(Pod).decode(msgspec.json.encode(data)), 8000) is None
