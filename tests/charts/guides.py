"""The commands of the guides, by name: the files of ``values/`` and the ``--set`` that each gives to helm."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

VALUES = Path(__file__).parent / "values"
LABEL = "inferencePool.modelServers.matchLabels.llm-d\\.ai/guide=tiered-prefix-cache-storage"


@dataclass(frozen=True, slots=True)
class Guide:
    """One command of a guide."""

    name: str
    chart: str
    files: tuple[str, ...]
    sets: tuple[str, ...] = ()

    @property
    def arguments(self) -> list[str]:
        """The arguments of helm behind the release and the chart."""
        files = [word for name in self.files for word in ("-f", str(VALUES / f"{name}.values.yaml"))]
        return [*files, *(word for each in self.sets for word in ("--set", each))]


_ROUTER = ("router-base", "router-cpu")
GUIDES = (
    Guide("v0.4", "inferencepool", ("v0.4",)),
    Guide(
        "v0.4-gke",
        "inferencepool",
        ("v0.4",),
        ("provider.name=gke", "inferenceExtension.monitoring.gke.enable=true"),
    ),
    Guide("v0.4-istio", "inferencepool", ("v0.4",), ("provider.name=istio",)),
    Guide("v0.4-later", "inferencepool", ("v0.4-later",)),
    Guide("storage", "standalone", ("storage-base", "storage")),
    Guide("storage-gateway", "inferencepool", ("storage-base",), (LABEL,)),
    Guide(
        "storage-gateway-route",
        "inferencepool",
        ("storage-base", "storage"),
        (
            "provider.name=istio",
            "experimentalHttpRoute.enabled=true",
            "experimentalHttpRoute.inferenceGatewayName=llm-d-inference-gateway",
            "experimentalHttpRoute.requestTimeout=0s",
        ),
    ),
    Guide("router-cpu", "standalone", _ROUTER),
    Guide("router-cpu-features", "standalone", (*_ROUTER, "router-monitoring", "router-tracing")),
    Guide(
        "router-cpu-gateway",
        "inferencepool",
        (*_ROUTER, "router-monitoring", "router-tracing", "router-httproute"),
        ("provider.name=istio",),
    ),
    Guide("router-cpu-gke", "inferencepool", (*_ROUTER, "router-monitoring"), ("provider.name=gke",)),
)

_SERVER = "inferenceExtension.endpointsServer"
FEATURES = (
    Guide(
        "monitoring",
        "inferencepool",
        ("storage-base", "storage"),
        ("inferenceExtension.monitoring.prometheus.enabled=true",),
    ),
    Guide(
        "tracing",
        "inferencepool",
        ("storage-base", "storage"),
        ("inferenceExtension.tracing.enabled=true",),
    ),
    Guide(
        "three pickers",
        "inferencepool",
        ("storage-base", "storage"),
        ("inferenceExtension.replicas=3",),
    ),
    Guide(
        "objectives",
        "inferencepool",
        ("storage-base", "storage"),
        ("inferenceObjectives[0].name=batch,inferenceObjectives[0].priority=-1",),
    ),
    Guide(
        "older pools",
        "inferencepool",
        ("v0.4",),
        ("inferencePool.apiVersion=inference.networking.x-k8s.io/v1alpha2,inferencePool.targetPortNumber=8000",),
    ),
    Guide(
        "closed",
        "inferencepool",
        ("v0.4",),
        ("inferenceExtension.failureMode=FailClose",),
    ),
    Guide(
        "sglang",
        "inferencepool",
        ("storage-base", "storage"),
        ("inferencePool.modelServerType=sglang",),
    ),
    Guide(
        "standalone without a pool",
        "standalone",
        ("storage-base", "storage"),
        (f"{_SERVER}.createInferencePool=false,{_SERVER}.endpointSelector=app=vllm,{_SERVER}.targetPorts=8000",),
    ),
    Guide(
        "standalone on gke",
        "standalone",
        ("storage-base", "storage"),
        ("provider.name=gke,inferenceExtension.monitoring.prometheus.enabled=true",),
    ),
)
"""Values that no guide has and many users do, for the charts of the older tree."""
