"""A healthy installation as objects, of which each test changes what is to be found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from epp.config.digest import digest
from epp.doctor.objects import ConfigMap, Deployment, EndpointSlice, Pod, Service
from epp.doctor.objects_routing import DestinationRule, Gateway, Route
from epp.doctor.pages import EnginePage, PickerPage
from epp.doctor.rules import examine
from epp.doctor.snapshot import Pool, Snapshot
from epp.kube.groups import GROUP

NAMESPACE = "llm"
CONFIGURATION = "kind: EndpointPickerConfig\n"
READY = [{"type": "Ready", "status": "True"}, {"type": "ContainersReady", "status": "True"}]
Fields = dict[str, Any]


def meta(name: str, **more: object) -> Fields:
    """Return the metadata of an object of the namespace."""
    return {"name": name, "namespace": NAMESPACE, **more}


def engine(name: str, *args: str, memory: str = "64Gi", **metadata: object) -> Pod:
    """Return a ready pod of vLLM."""
    container = {
        "name": "vllm", "image": "vllm/vllm-openai:v0.19.1", "args": ["Qwen/Qwen3-32B", *args],
        "ports": [{"containerPort": 8000}], "resources": {"limits": {"memory": memory}},
    }  # fmt: skip
    return msgspec.convert(
        {
            "metadata": meta(name, **{"labels": {"app": "qwen"}, **metadata}),
            "spec": {"containers": [container]},
            "status": {"phase": "Running", "podIP": "10.0.0.7", "conditions": READY},
        },
        Pod,
    )


def picker(*args: str, liveness: str = "liveness", image: str = "tierwise/tierwise:0.1.0") -> Deployment:
    """Return the Deployment of a picker, as the chart renders it."""
    words = ["--pool-name", "qwen", "--config-file", "/config/default-plugins.yaml", *args]
    container = {
        "name": "epp", "image": image, "args": words,
        "livenessProbe": {"grpc": {"port": 9003, "service": liveness}},
        "volumeMounts": [{"name": "config", "mountPath": "/config"}],
    }  # fmt: skip
    spec = {
        "serviceAccountName": "qwen-epp", "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": "qwen-epp"}}],
    }  # fmt: skip
    labels = {"inferencepool": "qwen-epp"}
    return msgspec.convert(
        {
            "metadata": meta("qwen-epp", labels={"app.kubernetes.io/version": "0.1.0"}),
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        },
        Deployment,
    )


def picker_pod(name: str = "qwen-epp-0") -> Pod:
    """Return a ready pod of the picker."""
    status = {"phase": "Running", "podIP": "10.0.0.2", "conditions": READY}
    return msgspec.convert({"metadata": meta(name, labels={"inferencepool": "qwen-epp"}), "status": status}, Pod)


def service(selector: Fields | None = None, **port: object) -> Service:
    """Return the Service of the picker."""
    written = {"name": "grpc-ext-proc", "port": 9002, "targetPort": "grpc", "appProtocol": "http2", **port}
    selector = {"inferencepool": "qwen-epp"} if selector is None else selector
    return msgspec.convert({"metadata": meta("qwen-epp"), "spec": {"selector": selector, "ports": [written]}}, Service)


def page(*, requests: int = 40, started: float = 1000.0, text: str = CONFIGURATION, current: bool = True) -> PickerPage:
    """Return the page of a ready picker."""
    facts = {
        "requests": str(requests), "started": str(started), "clock": "2000.0",
        "configuration-digest": digest(text.encode()), "configuration-current": str(current).lower(),
    }  # fmt: skip
    return PickerPage(True, "ready", facts, 2000.0)


def destination_rule(mode: str = "SIMPLE", **http: int) -> DestinationRule:
    """Return Istio's rule for the picker's Service."""
    policy = {"tls": {"mode": mode}, "connectionPool": {"http": http}}
    spec = {"host": "qwen-epp.llm.svc.cluster.local", "trafficPolicy": policy}
    return msgspec.convert({"metadata": meta("qwen-epp"), "spec": spec}, DestinationRule)


def route(group: str = GROUP, conditions: list[Fields] | None = None, request: str = "300s") -> Route:
    """Return a route to the pool."""
    rule = {
        "backendRefs": [{"group": group, "kind": "InferencePool", "name": "qwen"}], "timeouts": {"request": request}
    }  # fmt: skip
    parents = [{"parentRef": {"name": "gateway"}, "conditions": conditions or []}]
    spec = {"parentRefs": [{"name": "gateway"}], "rules": [rule]}
    return msgspec.convert({"metadata": meta("qwen"), "spec": spec, "status": {"parents": parents}}, Route)


def gateway(**condition: str) -> Gateway:
    """Return a Gateway with one condition."""
    status = {"conditions": [{"type": "Programmed", "status": "True", **condition}]}
    return msgspec.convert({"metadata": meta("gateway"), "status": status}, Gateway)


POOL = Pool("qwen", NAMESPACE, GROUP, {"app": "qwen"}, (8000,), "qwen-epp", 9002)
ENGINE = EnginePage(("Qwen/Qwen3-32B",), "16", "True", {"gpu": 14832.0}, 20.0, 0.0, 900.0)
HEALTHY = Snapshot(
    namespace=NAMESPACE,
    served=frozenset((f"{GROUP}/v1", "networking.istio.io/v1", "gateway.networking.k8s.io/v1")),
    pool_groups=(GROUP,),
    pools=(POOL,),
    pods=(engine("engine-0"), engine("engine-1"), picker_pod()),
    deployments=(picker(),),
    services=(service(),),
    slices=(
        msgspec.convert(
            {
                "metadata": meta("qwen-epp-abc", labels={"kubernetes.io/service-name": "qwen-epp"}),
                "endpoints": [{"addresses": ["10.0.0.2"], "conditions": {"ready": True}}],
            },
            EndpointSlice,
        ),
    ),
    maps={"qwen-epp": msgspec.convert({"data": {"default-plugins.yaml": CONFIGURATION}}, ConfigMap)},
    routes=(route(),),
    gateways={(NAMESPACE, "gateway"): gateway()},
    destination_rules=(destination_rule(),),
    picker_pages={"qwen-epp-0": page()},
    engine_pages={"engine-0:8000": ENGINE, "engine-1:8000": ENGINE},
)
"""An installation with a gateway, in which nothing is wrong."""


def causes(**changes: Any) -> list[str]:
    """Return the causes that are found in the healthy installation after ``changes`` of the snapshot."""
    return sorted({finding.cause for finding in examine(replace(HEALTHY, **changes))})
