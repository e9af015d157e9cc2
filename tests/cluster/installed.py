"""A healthy installation in a cluster of processes, and each fault of the benchmark as what is done to it.

A controller of gateways is not here: the conditions that one would write are written by the test.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from epp.kube.groups import GROUP, OLD_GROUP
from tests.cluster.cluster import ROOT, Cluster
from tests.cluster.workloads import complete, deployment, engines

Object = dict[str, Any]
POOL, EPP = "pool", "pool-epp"
PRESET = "qwen3-32b-tp2-h100"
"""What simulated engines are of, those that stand for vLLM's image too."""
CHART = str(ROOT / "manifests/charts/inferencepool")
GATEWAY_API = "gateway.networking.k8s.io/v1"
SELECTED = ("--set", "inferencePool.modelServers.matchLabels.app=engines")
SETS = (
    *SELECTED, "--set", "provider.name=istio",
    "--set", "experimentalHttpRoute.enabled=true", "--set", "experimentalHttpRoute.inferenceGatewayName=gateway",
)  # fmt: skip
WAIT = ("--wait", "--timeout", "120s")
EXT_PROC = "envoy.service.ext_proc.v3.ExternalProcessor"
CACHE = (
    '--kv-transfer-config={"kv_connector":"OffloadingConnector","kv_connector_extra_config":{"cpu_bytes_to_use":%d}}'
)


class Injection(NamedTuple):
    """How a fault is put into the installation, and how it is taken out."""

    put: Callable[[Cluster], object]
    undo: Callable[[Cluster], object]


def gateway() -> Object:
    """Return the Gateway that the chart's route names."""
    listener = {"name": "http", "port": 80, "protocol": "HTTP"}
    spec = {"gatewayClassName": "istio", "listeners": [listener]}
    return {"apiVersion": GATEWAY_API, "kind": "Gateway", "metadata": {"name": "gateway"}, "spec": spec}


def condition(kind: str, status: str, reason: str) -> Object:
    """Return a condition as a controller writes it."""
    return {
        "type": kind, "status": status, "reason": reason, "message": "as the test says",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip


def set_gateway(here: Cluster, status: str) -> None:
    """Write whether the Gateway is programmed."""
    conditions = [condition("Accepted", "True", "Accepted"), condition("Programmed", status, "Programmed")]
    path = f"/apis/{GATEWAY_API}/namespaces/default/gateways/gateway/status"
    merge(here, path, {"status": {"conditions": conditions}})


def set_parents(here: Cluster, path: str, resolved: str) -> None:
    """Write whether a pool or a route is accepted and resolved."""
    ref = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "gateway"}
    conditions = [condition("Accepted", "True", "Accepted"), condition("ResolvedRefs", resolved, "Resolved")]
    parent = {"parentRef": ref, "controllerName": "istio.io/gateway-controller", "conditions": conditions}
    merge(here, f"{path}/status", {"status": {"parents": [parent]}})


def merge(here: Cluster, path: str, patch: Object) -> None:
    """Change an object by a merge patch."""
    here.plane.request("PATCH", path, patch, "application/merge-patch+json")


POOL_PATH = f"/apis/{GROUP}/v1/namespaces/default/inferencepools/{POOL}"
ROUTE_PATH = f"/apis/{GATEWAY_API}/namespaces/default/httproutes/{POOL}"
SERVICE_PATH = f"/api/v1/namespaces/default/services/{EPP}"
RULE_PATH = f"/apis/networking.istio.io/v1/namespaces/default/destinationrules/{EPP}"
DEPLOYMENT_PATH = f"/apis/apps/v1/namespaces/default/deployments/{EPP}"


def install(here: Cluster) -> None:
    """Install the pool of two engines, its picker, the route and the Gateway, with a controller's conditions."""
    here.apply(engines(2, preset=PRESET), gateway())
    here.helm("install", POOL, CHART, *SETS, *WAIT)
    here.rolled_out("engines", EPP)
    set_gateway(here, "True")
    set_parents(here, POOL_PATH, "True")
    set_parents(here, ROUTE_PATH, "True")


def injections() -> dict[str, Injection]:
    """Return how each fault is put in, by its cause."""
    found = dict(_of_pool())
    found |= dict(_of_routing())
    found |= dict(_of_engines())
    found |= dict(_of_picker())
    found["no-definitions"] = Injection(
        lambda here: here.kubectl("delete", "crd", f"inferencepools.{GROUP}", f"inferencepools.{OLD_GROUP}"),
        lambda _: None,  # it is the last: the pool goes with its definition
    )
    return found


def patched(path: str, patch: Object, undo: Object) -> Injection:
    """Return a merge patch of an object, and the patch that takes it back."""
    return Injection(lambda here: merge(here, path, patch), lambda here: merge(here, path, undo))


def applied(*objects: Object, ready: str = "") -> Injection:
    """Return objects that are added, and deleted again; ``ready`` is a Deployment to wait for."""

    def put(here: Cluster) -> None:
        here.apply(*objects)
        if ready:
            here.rolled_out(ready)

    def undo(here: Cluster) -> None:
        for one in objects:
            here.kubectl("delete", one["kind"], one["metadata"]["name"], "--grace-period=0", "--wait=true")
        if ready:
            selector = f"set={ready}"
            here.until(lambda: not here.get("pods", "-l", selector)["items"], lambda: f"{ready} has pods still")

    return Injection(put, undo)


def deleted(kind: str, name: str) -> Injection:
    """Return the deletion of an object, which is made again as it was."""
    kept: list[Object] = []

    def put(here: Cluster) -> None:
        found = here.get(kind, name)
        for field in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
            found["metadata"].pop(field, None)
        kept.append(found)
        here.kubectl("delete", kind, name)

    return Injection(put, lambda here: here.apply(kept.pop()))


def template(here: Cluster, change: Callable[[Object], None]) -> None:
    """Change a picker's Deployment whose rollout is paused: what is written is judged, and no pod is replaced."""
    spec = here.plane.request("GET", DEPLOYMENT_PATH)["spec"]
    spec["paused"] = True
    change(spec["template"]["spec"]["containers"][0])
    merge(here, DEPLOYMENT_PATH, {"spec": spec})


def rewritten(change: Callable[[Object], None]) -> Injection:
    """Return a change of the picker's container, and what takes it back."""
    kept: list[Object] = []

    def put(here: Cluster) -> None:
        kept.append(here.plane.request("GET", DEPLOYMENT_PATH)["spec"])
        template(here, change)

    return Injection(put, lambda here: merge(here, DEPLOYMENT_PATH, {"spec": {**kept.pop(), "paused": None}}))


def _of_pool() -> Iterator[tuple[str, Injection]]:
    old = {
        "apiVersion": f"{OLD_GROUP}/v1alpha2", "kind": f"inferencepools.{OLD_GROUP}", "metadata": {"name": POOL},
        "spec": {"selector": {"app": "engines"}, "targetPortNumber": 8000, "extensionRef": {"name": EPP}},
    }  # fmt: skip
    yield (
        "pool-in-both-groups",
        Injection(
            lambda here: here.apply({**old, "kind": "InferencePool"}),
            lambda here: here.kubectl("delete", old["kind"], POOL),
        ),
    )

    def selector(value: str) -> Object:
        return {"spec": {"selector": {"matchLabels": {"app": value}}}}

    yield "selector-without-pods", patched(POOL_PATH, selector("enginez"), selector("engines"))

    def ports(port: int) -> Object:
        return {"spec": {"targetPorts": [{"number": port}]}}

    yield "port-not-served", patched(POOL_PATH, ports(8001), ports(8000))
    redis = {
        "name": "redis", "image": "busybox:1", "command": ["sleep", "3600"], "ports": [{"containerPort": 6379}],
    }  # fmt: skip
    yield (
        "foreign-pods",
        applied(deployment("redis", 1, {"app": "engines", "set": "redis"}, {"containers": [redis]}), ready="redis"),
    )
    yield (
        "pool-not-resolved",
        Injection(
            lambda here: set_parents(here, POOL_PATH, "False"), lambda here: set_parents(here, POOL_PATH, "True")
        ),
    )

    def annotate(here: Cluster, *words: str) -> None:
        pod = min(pod["metadata"]["name"] for pod in here.pods("app=engines"))
        here.kubectl("annotate", "pod", pod, "--overwrite", *words)

    yield (
        "active-ports-unknown",
        Injection(
            lambda here: annotate(here, "llm-d.ai/active-ports=8000,8001"),
            lambda here: annotate(here, "llm-d.ai/active-ports-"),
        ),
    )


def _of_routing() -> Iterator[tuple[str, Injection]]:
    def selector(value: str) -> Object:
        return {"spec": {"selector": {"inferencepool": value}}}

    yield "service-without-picker", patched(SERVICE_PATH, selector("nothing"), selector(EPP))
    as_it_was = {"name": "grpc-ext-proc", "protocol": "TCP", "port": 9002, "targetPort": "grpc", "appProtocol": "http2"}
    metrics = {"name": "http-metrics", "protocol": "TCP", "port": 9090, "targetPort": "metrics"}
    unsaid = {"name": "ext-proc", "protocol": "TCP", "port": 9002, "targetPort": "grpc"}
    yield (
        "service-port-protocol",
        patched(SERVICE_PATH, {"spec": {"ports": [unsaid, metrics]}}, {"spec": {"ports": [as_it_was, metrics]}}),
    )

    def policy(**fields: object) -> Object:
        return {"spec": {"trafficPolicy": fields}}

    yield "tls-differs", patched(
        RULE_PATH, policy(tls={"mode": "DISABLE", "insecureSkipVerify": None}),
        policy(tls={"mode": "SIMPLE", "insecureSkipVerify": True}),
    )  # fmt: skip
    yield "circuit-breaker-low", patched(
        RULE_PATH, policy(connectionPool={"http": {"http2MaxRequests": 1024}}),
        policy(connectionPool={"http": {"http2MaxRequests": 1000000}}),
    )  # fmt: skip
    yield (
        "gateway-not-programmed",
        Injection(lambda here: set_gateway(here, "False"), lambda here: set_gateway(here, "True")),
    )

    def backend(here: Cluster, group: str) -> None:
        rules = here.plane.request("GET", ROUTE_PATH)["spec"]["rules"]
        rules[0]["backendRefs"][0]["group"] = group
        merge(here, ROUTE_PATH, {"spec": {"rules": rules}})

    yield "route-names-other-group", Injection(lambda here: backend(here, OLD_GROUP), lambda here: backend(here, GROUP))


def _of_engines() -> Iterator[tuple[str, Injection]]:
    yield "engines-differ", applied(engines(1, "wide", preset="demo"), ready="wide")
    big = engines(1, "big")
    container = big["spec"]["template"]["spec"]["containers"][0]
    container["image"], container["resources"] = "vllm/vllm-openai:v0.19.1", {"limits": {"memory": "64Gi"}}
    container["command"] = ["vllm", "serve", "Qwen/Qwen3-32B", "--port=8000"]
    container["args"] = [CACHE % (100 << 30)]
    yield "cache-above-memory", applied(big, ready="big")
    held = engines(1, "held", preset=PRESET)
    held["spec"]["template"]["spec"]["readinessGates"] = [{"conditionType": "example.com/warm"}]
    gate = applied(held)

    def put(here: Cluster) -> None:
        gate.put(here)
        here.until(lambda: all(_containers_ready(pod) for pod in here.pods("set=held")), here.story)

    def gone(here: Cluster) -> None:
        gate.undo(here)
        here.until(lambda: not here.get("pods", "-l", "set=held")["items"], here.story)

    yield "pods-held-by-gates", Injection(put, gone)

    def past_the_picker(here: Cluster) -> None:
        here.kubectl("delete", "pod", "-l", "app=engines")  # engines that are younger than the picker
        here.rolled_out("engines")
        pod = here.pods("app=engines")[0]
        for number in range(12):
            complete(f"{pod['status']['podIP']}:8000", f"number {number}")

    def forget(here: Cluster) -> None:
        here.kubectl("delete", "pod", "-l", "app=engines")
        here.rolled_out("engines")

    yield "picker-bypassed", Injection(past_the_picker, forget)


def _containers_ready(pod: Object) -> bool:
    conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", ())}
    return conditions.get("ContainersReady") == "True"


def _of_picker() -> Iterator[tuple[str, Injection]]:
    yield "picker-may-not-list-pods", deleted("rolebinding", f"{EPP}-sa")
    yield "metrics-not-authorised", deleted("clusterrolebinding", f"{POOL}-default-epp")

    def rules(here: Cluster, *resources: str) -> None:
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/{EPP}-non-sa"
        found = here.plane.request("GET", path)["rules"]
        for rule in found:
            if "inferenceobjectives" in rule["resources"]:
                rule["resources"] = list(resources)
        merge(here, path, {"rules": found})

    yield (
        "picker-lacks-rights",
        Injection(
            lambda here: rules(here, "inferenceobjectives"),
            lambda here: rules(here, "inferenceobjectives", "inferencemodelrewrites"),
        ),
    )

    def probe(container: Object) -> None:
        container["livenessProbe"]["grpc"]["service"] = EXT_PROC
        container["args"].append("--ha-enable-leader-election")

    yield "standby-restarted", rewritten(probe)

    def other_group(container: Object) -> None:
        container["args"][container["args"].index("--pool-group") + 1] = OLD_GROUP

    yield "picker-reads-other-group", rewritten(other_group)
    yield "boolean-in-two-words", rewritten(lambda container: container["args"].extend(("--secure-serving", "false")))
    kept: list[str] = []
    path = f"/api/v1/namespaces/default/configmaps/{EPP}"

    def misspell(here: Cluster) -> None:
        text = here.plane.request("GET", path)["data"]["default-plugins.yaml"]
        kept.append(text)
        merge(here, path, {"data": {"default-plugins.yaml": text.replace("queue-scorer", "queue-scorr")}})

    yield (
        "configuration-not-in-force",
        Injection(misspell, lambda here: merge(here, path, {"data": {"default-plugins.yaml": kept.pop()}})),
    )


def causes(report: str) -> list[str]:
    """Return the causes in a report as JSON."""
    return sorted({finding["cause"] for finding in json.loads(report)["findings"]})
