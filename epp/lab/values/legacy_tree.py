"""The keys of the older tree: ``inferenceExtension``, ``inferencePool``, ``experimentalHttpRoute`` and their like."""

from __future__ import annotations

from collections.abc import Mapping

from epp.lab.values.kubernetes import SERVICE_PORTS
from epp.lab.values.nodes import (
    BOOLEAN,
    DURATION,
    PORT,
    SCALAR,
    TEXT,
    Either,
    Free,
    Listing,
    Node,
    Section,
    choice,
)
from epp.lab.values.shared import (
    CONTAINER,
    DESTINATION_RULE,
    FAILURE_MODE,
    LATENCY_PREDICTOR,
    OBJECTIVES,
    PICKER,
    POOL_VERSION,
    PROMETHEUS,
    ROUTE,
    SERVER_TYPE,
    TARGET_PORTS,
    TRACING,
)

_PORTS_OF_ENDPOINTS = Either((PORT, TEXT, Listing(PORT)))

LEGACY: Mapping[str, Node] = {
    "inferenceExtension": Section(
        {
            **PICKER,
            "extraServicePorts": SERVICE_PORTS,
            "failureMode": FAILURE_MODE,
            "metricsPort": PORT,
            "sidecar": Section(CONTAINER),
            "monitoring": Section(
                {
                    "interval": DURATION,
                    "prometheus": Section({**PROMETHEUS, "enable": BOOLEAN}),
                    "gke": Section({"enabled": BOOLEAN, "enable": BOOLEAN}),
                }
            ),
            "tracing": TRACING,
            "latencyPredictor": Section(
                {
                    "enabled": LATENCY_PREDICTOR,
                    "trainingServer": Free(),
                    "predictionServers": Free(),
                    "eppEnv": Free(),
                    "routing": Free(),
                }
            ),
            "endpointsServer": Section(
                {
                    "createInferencePool": BOOLEAN,
                    "endpointSelector": TEXT,
                    "targetPorts": _PORTS_OF_ENDPOINTS,
                    "modelServerType": SERVER_TYPE,
                    "modelServerProtocol": choice("http", "grpc"),
                }
            ),
        }
    ),
    "inferencePool": Section(
        {
            "apiVersion": POOL_VERSION,
            "targetPorts": TARGET_PORTS,
            "targetPortNumber": PORT,
            "modelServerType": SERVER_TYPE,
            "modelServerProtocol": choice("http", "grpc"),
            "parser": TEXT,
            "modelServers": Section({"matchLabels": Free(SCALAR)}),
        }
    ),
    "inferenceObjectives": OBJECTIVES,
    "experimentalHttpRoute": Section({"enabled": BOOLEAN, **ROUTE}),
    "istio": DESTINATION_RULE,
}
