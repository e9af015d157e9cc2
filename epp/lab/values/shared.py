"""The sections that both trees have under other names: the picker, its proxy, monitoring, tracing, objectives."""

from __future__ import annotations

from collections.abc import Mapping

from epp.lab.values.kubernetes import CONTAINER_PORTS, PULL_POLICY, RESOURCES
from epp.lab.values.nodes import (
    ANYTHING,
    BOOLEAN,
    DURATION,
    LABELS,
    NUMBER_OR_TEXT,
    OBJECTS,
    PORT,
    SCALAR,
    TEXT,
    WORD,
    WORDS,
    Either,
    Free,
    Leaf,
    Listing,
    Node,
    Section,
    choice,
)

FAILURE_MODE = choice("FailOpen", "FailClose", "FailClosed", "FailOpened")
"""FailClosed is what upstream's page says; the CRD has FailClose."""
SERVER_TYPE = choice("vllm", "sglang", "triton-tensorrt-llm", "triton", "trtllm-serve", "vLLM", "SGLang")
POOL_VERSION = choice("inference.networking.k8s.io/v1", "inference.networking.x-k8s.io/v1alpha2")
TARGET_PORTS = Listing(Section({"number": PORT}, required=("number",)), unique=True)
IMAGE: Mapping[str, Node] = {
    "registry": TEXT,
    "repository": TEXT,
    "hub": TEXT,
    "name": TEXT,
    "tag": TEXT,
    "digest": TEXT,
    "pullPolicy": PULL_POLICY,
    "literal": BOOLEAN,
}
METRICS_SOURCE = Section({"scheme": choice("http", "https"), "path": TEXT, "insecureSkipVerify": BOOLEAN})
PICKER: Mapping[str, Node] = {
    "replicas": Leaf(("integer",), minimum=1, maximum=100),
    "image": Section(IMAGE),
    "extProcPort": PORT,
    "flags": Free(SCALAR),
    "env": OBJECTS,
    "metricsDataSource": METRICS_SOURCE,
    "pluginsConfigFile": TEXT,
    "pluginsCustomConfig": Free(TEXT),
    "extraContainerPorts": CONTAINER_PORTS,
    "resources": RESOURCES,
    "affinity": ANYTHING,
    "tolerations": OBJECTS,
    "volumes": OBJECTS,
    "volumeMounts": OBJECTS,
}
CONTAINER: Mapping[str, Node] = {
    "enabled": BOOLEAN,
    "name": TEXT,
    "image": TEXT,
    "imagePullPolicy": PULL_POLICY,
    "command": Either((TEXT, WORDS)),
    "args": WORDS,
    "env": OBJECTS,
    "ports": OBJECTS,
    "livenessProbe": ANYTHING,
    "readinessProbe": ANYTHING,
    "startupProbe": ANYTHING,
    "securityContext": ANYTHING,
    "resources": RESOURCES,
    "volumeMounts": OBJECTS,
    "volumes": OBJECTS,
    "configMap": Section({"name": TEXT, "data": Free(TEXT)}),
}
PROMETHEUS: Mapping[str, Node] = {
    "enabled": BOOLEAN,
    "auth": Section({"enabled": BOOLEAN, "secretName": TEXT}),
    "extraLabels": LABELS,
}
TRACING = Section(
    {
        "enabled": BOOLEAN,
        "otelExporterEndpoint": TEXT,
        "sampling": Section({"sampler": TEXT, "samplerArg": NUMBER_OR_TEXT}),
    }
)
OBJECTIVES = Listing(
    Section(
        {"name": WORD, "priority": Leaf(("integer",), minimum=-(2**31), maximum=2**31 - 1)},
        required=("name",),
    )
)
LATENCY_PREDICTOR = Leaf(
    ("boolean",),
    choices=(False,),
    refusal="latencyPredictor is refused: Tierwise estimates the time to first token itself (cost scorers)",
)
ROUTE: Mapping[str, Node] = {
    "inferenceGatewayName": TEXT,
    "inferenceGatewayNamespace": TEXT,
    "requestTimeout": DURATION,
    "headerMatches": Free(TEXT),
    "baseModel": TEXT,
}
DESTINATION_RULE = Section({"destinationRule": Section({"host": TEXT, "trafficPolicy": ANYTHING})})
PROVIDER = Section(
    {
        "name": choice("none", "gke", "istio", "agentgateway", "envoy-ai-gateway", "None", "GKE", "Istio"),
        "gke": Section(
            {
                "autopilot": BOOLEAN,
                "preferredBackends": Section(
                    {
                        "enabled": BOOLEAN,
                        "preferredReplicas": Leaf(("integer",), minimum=0),
                        "defaultReplicas": Leaf(("integer",), minimum=0),
                        "balancingMode": TEXT,
                        "maxRatePerEndpoint": Leaf(("integer",), minimum=0),
                        "capacityScalerPercent": Leaf(("integer",), minimum=0, maximum=100),
                    }
                ),
            }
        ),
        "istio": DESTINATION_RULE,
    }
)
