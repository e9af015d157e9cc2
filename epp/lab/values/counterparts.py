"""Which key of the one tree is which key of the other; what is more than a move is in ``convert.py``."""

from __future__ import annotations

from epp.lab.values.shared import CONTAINER

_PICKER = (
    "replicas",
    "extProcPort",
    "metricsPort",
    "flags",
    "env",
    "metricsDataSource",
    "pluginsConfigFile",
    "pluginsCustomConfig",
    "extraContainerPorts",
    "resources",
    "affinity",
    "tolerations",
    "volumes",
    "volumeMounts",
)
_IMAGE = (
    ("hub", "registry"),
    ("name", "repository"),
    *((key, key) for key in ("registry", "repository", "tag", "digest", "pullPolicy", "literal")),
)

MOVES: tuple[tuple[str, str], ...] = (
    *((f"inferenceExtension.{key}", f"router.epp.{key}") for key in _PICKER),
    *((f"inferenceExtension.image.{old}", f"router.epp.image.{new}") for old, new in _IMAGE),
    ("inferenceExtension.extraServicePorts", "router.extraServicePorts"),
    ("inferenceExtension.failureMode", "router.inferencePool.failureMode"),
    *((f"inferenceExtension.sidecar.{key}", f"router.proxy.{key}") for key in CONTAINER),
    ("inferenceExtension.monitoring.interval", "router.monitoring.interval"),
    *(
        (f"inferenceExtension.monitoring.prometheus.{key}", f"router.monitoring.prometheus.{key}")
        for key in ("enabled", "auth", "extraLabels")
    ),
    ("inferenceExtension.tracing", "router.tracing"),
    ("inferenceExtension.latencyPredictor", "router.latencyPredictor"),
    ("inferencePool.apiVersion", "router.inferencePool.apiVersion"),
    ("inferencePool.targetPorts", "router.modelServers.targetPorts"),
    ("inferencePool.targetPortNumber", "router.modelServers.targetPortNumber"),
    ("inferencePool.modelServerType", "router.modelServers.type"),
    ("inferencePool.modelServerProtocol", "router.modelServers.protocol"),
    ("inferencePool.modelServers.matchLabels", "router.modelServers.matchLabels"),
    ("inferenceObjectives", "router.inferenceObjectives"),
    ("experimentalHttpRoute.enabled", "httpRoute.create"),
    *(
        (f"experimentalHttpRoute.{key}", f"httpRoute.{key}")
        for key in ("inferenceGatewayName", "inferenceGatewayNamespace", "requestTimeout", "headerMatches", "baseModel")
    ),
    ("istio.destinationRule", "provider.istio.destinationRule"),
)
"""Paths of the older tree, and of the newer one. Of two older paths with one newer, the last one that is set wins."""
