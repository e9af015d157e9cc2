"""Each rule finds its fault in an installation that is healthy otherwise, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from epp.doctor.objects import Pod
from epp.doctor.objects_routing import Parent
from epp.doctor.rules import examine
from epp.doctor.snapshot import Lack, Snapshot
from epp.kube.groups import OLD_GROUP
from epp.kube.rights import Right
from tests.doctor.faults import FAULTS
from tests.doctor.snapshots import (
    ENGINE,
    HEALTHY,
    NAMESPACE,
    POOL,
    READY,
    causes,
    destination_rule,
    engine,
    gateway,
    meta,
    page,
    picker,
    picker_pod,
    route,
    service,
)  # fmt: skip

ACCOUNT = f"system:serviceaccount:{NAMESPACE}:qwen-epp"
EXTRA = '"kv_connector_extra_config":{"cpu_bytes_to_use":%d}'
CACHE = '--kv-transfer-config={"kv_connector":"OffloadingConnector",' + EXTRA + "}"


def pods(*engines: Pod) -> tuple[Pod, ...]:
    return (*engines, picker_pod())


def stranger(port: int) -> Pod:
    container = {"name": "redis", "image": "redis:7", "ports": [{"containerPort": port}]}
    status = {"phase": "Running", "podIP": "10.0.0.9", "conditions": READY}
    fields = {"metadata": meta("redis", labels={"app": "qwen"}), "spec": {"containers": [container]}, "status": status}
    return msgspec.convert(fields, Pod)


def gated() -> Pod:
    conditions = [{"type": "ContainersReady", "status": "True"}, {"type": "Ready", "status": "False"}]
    return msgspec.convert(
        {
            "metadata": meta("engine-0", labels={"app": "qwen"}),
            "spec": {"readinessGates": [{"conditionType": "example.com/warm"}]},
            "status": {"phase": "Running", "conditions": conditions},
        },
        Pod,
    )


def refused(kind: str) -> tuple[Parent, ...]:
    condition = {"type": kind, "status": "False", "reason": "InvalidExtensionRef", "message": "no such Service"}
    return (msgspec.convert({"parentRef": {"name": "gateway"}, "conditions": [condition]}, Parent),)


def lack(feature: str, *rights: Right) -> tuple[Lack, ...]:
    return (Lack(ACCOUNT, feature, rights, "something does not work"),)


LIST_PODS = Right("", "pods", "list", NAMESPACE)
REFUSED = [{"type": "ResolvedRefs", "status": "False", "reason": "BackendNotFound"}]
OTHER_BLOCKS = replace(ENGINE, block_size="32")
GIB = 1 << 30
CASES: list[tuple[str, dict[str, Any]]] = [
    ("no-definitions", {"pool_groups": (), "pools": (), "routes": (), "gateways": {}}),
    ("pool-in-both-groups", {"pools": (POOL, replace(POOL, group=OLD_GROUP))}),
    ("picker-may-not-list-pods", {"lacks": lack("pods", LIST_PODS)}),
    ("selector-without-pods", {"pools": (replace(POOL, labels={"app": "other"}),)}),
    ("selector-empty", {"pools": (replace(POOL, labels={}),)}),
    ("foreign-pods", {"pods": pods(engine("engine-0"), stranger(6379))}),
    ("port-not-served", {"pools": (replace(POOL, ports=(8001,)),)}),
    ("service-without-picker", {"services": (service({"app": "nothing"}),)}),
    ("service-missing", {"services": ()}),
    ("service-port-missing", {"services": (service(port=9003),)}),
    ("service-port-protocol", {"services": (service(name="ext-proc", appProtocol=""),)}),
    ("tls-differs", {"destination_rules": (destination_rule("DISABLE"),)}),
    ("tls-differs", {"deployments": (picker("--secure-serving=false"),)}),
    ("circuit-breaker-low", {"destination_rules": (destination_rule(http2MaxRequests=1024),)}),
    ("gateway-not-programmed", {"gateways": {(NAMESPACE, "gateway"): gateway(status="False")}}),
    ("gateway-missing", {"gateways": {(NAMESPACE, "gateway"): None}}),
    ("pool-not-resolved", {"pools": (replace(POOL, parents=refused("ResolvedRefs")),)}),
    ("pool-not-accepted", {"pools": (replace(POOL, parents=refused("Accepted")),)}),
    ("route-names-other-group", {"routes": (route(OLD_GROUP),)}),
    ("route-not-resolved", {"routes": (route(conditions=REFUSED),)}),
    ("route-timeout-short", {"routes": (route(request="5s"),)}),
    ("engines-differ", {"engine_pages": {"engine-0:8000": ENGINE, "engine-1:8000": OTHER_BLOCKS}}),
    ("engines-differ", {"engine_pages": {
        "engine-0:8000": ENGINE, "engine-1:8000": replace(ENGINE, capacities={"gpu": 9000.0})}}),
    ("engines-differ", {"pods": pods(engine("engine-0", CACHE % GIB), engine("engine-1"))}),
    ("cache-above-memory", {"pods": pods(engine("engine-0", CACHE % (100 * GIB)))}),
    ("prefix-caching-off", {"pods": pods(engine("engine-0", "--no-enable-prefix-caching"), engine("engine-1"))}),
    ("kv-events-unread", {"pods": pods(engine("engine-0", '--kv-events-config={"enable_kv_cache_events":true}'))}),
    ("standby-restarted", {"deployments": (
        picker("--ha-enable-leader-election", liveness="envoy.service.ext_proc.v3.ExternalProcessor"),)}),
    ("configuration-not-in-force", {"picker_pages": {"qwen-epp-0": page(text="older", current=False)}}),
    ("configuration-missing", {"maps": {"qwen-epp": None}}),
    ("replicas-differ", {
        "pods": pods(engine("engine-0"), picker_pod("qwen-epp-1")),
        "picker_pages": {"qwen-epp-0": page(), "qwen-epp-1": page(text="older")}}),
    ("clock-differs", {"picker_pages": {"qwen-epp-0": replace(page(), read_at=2060.0)}}),
    ("metrics-not-authorised", {"lacks": lack("metrics-auth", Right("a.io", "tokenreviews", "create", None))}),
    ("picker-bypassed", {
        "picker_pages": {"qwen-epp-0": page(requests=0)},
        "engine_pages": {"engine-0:8000": replace(ENGINE, started=1001.0)}}),
    ("picker-bypassed", {
        "picker_pages": {"qwen-epp-0": page(requests=0)},
        "engine_pages": {"engine-0:8000": replace(ENGINE, more=12.0)}}),
    ("active-ports-unknown", {"pods": pods(engine("engine-0", annotations={"llm-d.ai/active-ports": "8000,8001"}))}),
    ("picker-reads-other-group", {"deployments": (picker("--pool-group", OLD_GROUP),)}),
    ("picker-lacks-rights", {"lacks": lack("rewrites", LIST_PODS)}),
    ("pods-held-by-gates", {"pods": pods(gated(), engine("engine-1"))}),
    ("boolean-in-two-words", {"deployments": (picker("--tracing", "false"),)}),
    ("pools-share-pods", {"pools": (POOL, replace(POOL, name="other"))}),
    ("image-differs-from-chart", {"deployments": (picker(image="tierwise/tierwise:0.0.9"),)}),
    ("picker-is-not-tierwise", {"deployments": (picker(image="ghcr.io/llm-d/llm-d-inference-scheduler:v0.8.0"),)}),
    ("no-such-pool", {"name": "typo"}),
    ("slices-differ", {"slices": (msgspec.structs.replace(HEALTHY.slices[0], endpoints=()),)}),
]  # fmt: skip


def test_nothing_is_found_in_a_healthy_installation() -> None:
    assert examine(HEALTHY) == []


@pytest.mark.parametrize(("cause", "changes"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_a_fault_is_named_and_nothing_else_is(cause: str, changes: dict[str, Any]) -> None:
    assert causes(**changes) == [cause]


def test_every_fault_of_the_benchmark_has_a_rule() -> None:
    assert {fault.cause for fault in FAULTS} <= {cause for cause, _ in CASES}


@pytest.mark.parametrize(("cause", "changes"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_a_finding_is_one_sentence_with_an_object_and_what_mends_it(cause: str, changes: dict[str, Any]) -> None:
    for finding in examine(replace(HEALTHY, **changes)):
        assert finding.object[0].isupper() or finding.object == "the cluster"
        assert finding.text[0].islower(), finding
        assert finding.text.rstrip(".") + "." == finding.text, finding
        assert "\n" not in finding.text, finding
        assert finding.remedy, finding


def test_an_empty_namespace_is_one_finding() -> None:
    assert [one.cause for one in examine(Snapshot(namespace="empty", pool_groups=HEALTHY.pool_groups))] == [
        "nothing-installed"
    ]


def test_a_cluster_without_definitions_is_one_finding() -> None:
    assert [one.cause for one in examine(Snapshot(namespace="empty"))] == ["no-definitions"]


def test_what_follows_from_missing_definitions_is_not_found_as_well() -> None:
    assert causes(pool_groups=(), pools=()) == ["no-definitions"]


def test_requests_from_before_the_picker_started_accuse_no_gateway() -> None:
    assert causes(picker_pages={"qwen-epp-0": page(requests=0, started=1000.0)}) == []
