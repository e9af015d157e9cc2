"""Installations in unusual and legal forms, of which no rule accuses any."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from epp.doctor.finding import Unread
from epp.doctor.objects import Deployment, EndpointSlice, Pod
from epp.doctor.objects_routing import DestinationRule, Route
from epp.doctor.snapshot import Snapshot
from epp.kube.groups import GROUP
from tests.doctor.snapshots import (
    ENGINE,
    HEALTHY,
    POOL,
    READY,
    causes,
    destination_rule,
    engine,
    meta,
    page,
    picker,
    picker_pod,
    route,
    service,
)  # fmt: skip

SIDECAR = {"name": "istio-proxy", "image": "istio/proxyv2", "ports": [{"containerPort": 15090}]}
ROUTING = {"name": "routing", "image": "llm-d-routing-sidecar:v0.6", "args": ["--vllm-port=8200", "--connector=nixlv2"],
           "ports": [{"containerPort": 8000}]}  # fmt: skip
TRANSFER = '{"kv_connector":"NixlConnector"}'
ISTIO = {"parentRef": {"name": "gateway"}, "controllerName": "istio.io/gateway-controller"}
OTHERS = {"parentRef": {"name": "gateway"}, "controllerName": "gateway.envoyproxy.io/gatewayclass-controller"}


def pod(name: str, *containers: dict[str, Any], labels: dict[str, str] | None = None) -> Pod:
    fields = {
        "metadata": meta(name, labels={"app": "qwen", **(labels or {})}),
        "spec": {"containers": list(containers)},
        "status": {"phase": "Running", "podIP": "10.0.0.7", "conditions": READY},
    }
    return msgspec.convert(fields, Pod)


def vllm(*args: str, **fields: Any) -> dict[str, Any]:
    return {"name": "vllm", "image": "vllm/vllm-openai:v0.19.1", "args": ["Qwen/Qwen3-32B", *args],
            "ports": [{"containerPort": 8000}], **fields}  # fmt: skip


def by_expressions() -> Deployment:
    raw = msgspec.to_builtins(picker())
    raw["spec"]["selector"] = {"matchExpressions": [{"key": "inferencepool", "operator": "Exists"}]}
    return msgspec.convert(raw, Deployment)


def rule(**spec: Any) -> DestinationRule:
    fields = {"metadata": meta("qwen-epp"), "spec": {"host": "qwen-epp.llm.svc.cluster.local", **spec}}
    return msgspec.convert(fields, DestinationRule)


def routed(controller: dict[str, Any], *further: dict[str, Any]) -> Route:
    raw = msgspec.to_builtins(route())
    raw["spec"]["rules"] += further
    raw["status"] = {"parents": [controller]}
    return msgspec.convert(raw, Route)


def elsewhere() -> Route:
    raw = msgspec.to_builtins(route())
    raw["spec"]["rules"][0]["backendRefs"] = [{"kind": "Service", "name": "web"}]
    return msgspec.convert(raw, Route)


def six() -> EndpointSlice:
    fields = {
        "metadata": meta("qwen-epp-six", labels={"kubernetes.io/service-name": "qwen-epp"}),
        "endpoints": [{"addresses": ["fd00::2"]}],
    }
    return msgspec.convert(fields, EndpointSlice)


def dual() -> Pod:
    raw = msgspec.to_builtins(picker_pod())
    raw["status"]["podIPs"] = [{"ip": "10.0.0.2"}, {"ip": "fd00::2"}]
    return msgspec.convert(raw, Pod)


SHORT = {"backendRefs": [{"kind": "Service", "name": "web"}], "timeouts": {"request": "5s"}}
SIMPLE = {"port": {"number": 9002}, "tls": {"mode": "SIMPLE"}}
SHELL = {"command": ["/bin/bash", "-c"], "args": [f"exec vllm serve Qwen/Qwen3-32B --kv-transfer-config '{TRANSFER}'"]}
OTHER = replace(POOL, name="other", labels={"app": "other"}, service="other-epp")
LEGAL: dict[str, dict[str, Any]] = {
    "an engine declares no port, and its sidecar does": {"pods": (pod("engine-0", vllm(ports=[]), SIDECAR),
                                                                 picker_pod())},
    "a routing sidecar has vllm in a flag": {"pods": (
        pod("engine-0", vllm(f"--kv-transfer-config={TRANSFER}"), ROUTING), picker_pod())},
    "engines are started by a shell and without": {"pods": (
        pod("engine-0", vllm(**SHELL)), pod("engine-1", vllm(f"--kv-transfer-config={TRANSFER}")), picker_pod())},
    "prefill and decode have their own connectors": {"pods": (
        pod("engine-0", vllm(), labels={"llm-d.ai/role": "prefill"}),
        pod("engine-1", vllm(f"--kv-transfer-config={TRANSFER}"), labels={"llm-d.ai/role": "decode"}), picker_pod())},
    "prefill and decode have caches of their own sizes": {
        "pods": (pod("engine-0", vllm(), labels={"llm-d.ai/role": "prefill"}),
                 pod("engine-1", vllm(), labels={"llm-d.ai/role": "decode"}), picker_pod()),
        "engine_pages": {"engine-0:8000": ENGINE, "engine-1:8000": replace(ENGINE, capacities={"gpu": 90000.0})}},
    "a Deployment selects by expressions": {"deployments": (by_expressions(),)},
    "Istio's rules may not be read": {"destination_rules": (), "routes": (routed(ISTIO),), "unread": (
        Unread("destinationrules.networking.istio.io", "this account may not"),)},
    "Istio's rule is for all hosts of the namespace": {
        "destination_rules": (rule(host="*.llm.svc.cluster.local", trafficPolicy={"tls": {"mode": "SIMPLE"}}),),
        "routes": (routed(ISTIO),)},
    "Istio's rule has TLS for the port": {"destination_rules": (rule(trafficPolicy={"portLevelSettings": [SIMPLE]}),)},
    "a sidecar of Istio speaks TLS for a picker in plaintext": {
        "deployments": (picker("--secure-serving=false"),), "destination_rules": (destination_rule("ISTIO_MUTUAL"),)},
    "another rule of the route is short": {"routes": (routed(ISTIO, SHORT),)},
    "a pool without a picker has no route": {"pools": (replace(POOL, service=None),), "routes": (elsewhere(),)},
    "another pool's picker is a StatefulSet": {
        "slices": (), "pools": (POOL, OTHER), "pods": (*HEALTHY.pods, pod("other-0", vllm(), labels={"app": "other"}),
                                         msgspec.structs.replace(picker_pod(), metadata=msgspec.convert(meta(
                                             "other-epp-0", labels={"epp": "other"}), type(picker_pod().metadata)))),
        "services": (service(), msgspec.structs.replace(service({"epp": "other"}), metadata=msgspec.convert(
            meta("other-epp"), type(service().metadata))))},
    "the picker's pool is named by a variable": {"deployments": (picker("--pool-name=$(POOL)"),)},
    "Istio is in the cluster, and another gateway leads here": {
        "services": (service(name="ext-proc", appProtocol=""),), "routes": (routed(OTHERS),)},
    "a Service of the second address family": {"pods": (engine("engine-0"), dual()), "slices": (six(),)},
    "the page of the leader was not read": {
        "pods": (engine("engine-0"), picker_pod(), picker_pod("qwen-epp-1")),
        "picker_pages": {"qwen-epp-1": page(requests=0)},
        "engine_pages": {"engine-0:8000": replace(ENGINE, more=99.0)}},
}  # fmt: skip


@pytest.mark.parametrize("changes", LEGAL.values(), ids=LEGAL)
def test_no_rule_accuses_what_is_legal(changes: dict[str, Any]) -> None:
    assert causes(**changes) == []


def test_a_picker_without_replicas_is_one_finding() -> None:
    raw = msgspec.to_builtins(picker())
    raw["spec"]["replicas"] = 0
    assert causes(deployments=(msgspec.convert(raw, Deployment),), pods=(engine("engine-0"),)) == [
        "picker-scaled-to-zero"
    ]


def test_what_could_not_be_read_does_not_count_as_missing() -> None:
    unread = Unread("inferencepools.inference.networking.k8s.io", "1 object cannot be read")
    assert not Snapshot(namespace="llm", pool_groups=(GROUP,), unread=(unread,)).saw("inferencepools")
