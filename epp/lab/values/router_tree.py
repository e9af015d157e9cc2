"""The keys of the newer tree: ``router`` and ``httpRoute``."""

from __future__ import annotations

from collections.abc import Mapping

from epp.lab.values.kubernetes import AUTOSCALING, PULL_SECRETS, SERVICE_PORTS
from epp.lab.values.nodes import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    DURATION,
    LABELS,
    OBJECTS,
    PORT,
    SCALAR,
    TEXT,
    WORDS,
    Either,
    Free,
    Leaf,
    Node,
    Section,
    choice,
)
from epp.lab.values.shared import (
    CONTAINER,
    FAILURE_MODE,
    IMAGE,
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

_PROXY: Mapping[str, Node] = {
    **CONTAINER,
    "proxyType": choice("envoy", "agentgateway"),
    "mode": choice("sidecar", "service"),
    "replicas": Leaf(("integer",), minimum=1),
    "failOpen": BOOLEAN,
    "autoscaling": AUTOSCALING,
    "presets": Section({"envoy": Section(CONTAINER), "agentgateway": Section(CONTAINER)}),
    "agentgateway": Section({"service": ANYTHING}),
    "priorityRouting": ANYTHING,
}
_TOKENIZER: Mapping[str, Node] = {
    "enabled": BOOLEAN,
    "flavor": choice("python", "rust"),
    "modelName": TEXT,
    "image": Section(IMAGE),
    "port": PORT,
    "command": Either((TEXT, WORDS)),
    "args": WORDS,
    "extraArgs": WORDS,
    "initContainers": OBJECTS,
    "env": OBJECTS,
    "resources": CONTAINER["resources"],
    "volumes": OBJECTS,
    "volumeMounts": OBJECTS,
    "readinessProbe": ANYTHING,
    "securityContext": ANYTHING,
}

ROUTER: Mapping[str, Node] = {
    "router": Section(
        {
            "clusterDomain": TEXT,
            "extraServicePorts": SERVICE_PORTS,
            "imagePullSecrets": PULL_SECRETS,
            "epp": Section(
                {
                    **PICKER,
                    "grpcHealthPort": PORT,
                    "metricsPort": PORT,
                    "terminationGracePeriodSeconds": COUNT,
                    "parsers": WORDS,
                    "podAnnotations": LABELS,
                    "podSecurityContext": ANYTHING,
                    "securityContext": ANYTHING,
                    "deploymentStrategy": ANYTHING,
                    "pluginsConfig": ANYTHING,
                    "autoscaling": AUTOSCALING,
                }
            ),
            "proxy": Section(_PROXY),
            "tokenizer": Section(_TOKENIZER),
            "monitoring": Section(
                {
                    "interval": DURATION,
                    "provider": Section(
                        {
                            "name": choice("", "prometheusoperator", "gmp"),
                            "gmp": Section({"autopilot": BOOLEAN}),
                            "prometheusoperator": ANYTHING,
                        }
                    ),
                    "prometheus": Section(PROMETHEUS),
                }
            ),
            "tracing": TRACING,
            "inferencePool": Section({"create": BOOLEAN, "failureMode": FAILURE_MODE, "apiVersion": POOL_VERSION}),
            "inferenceObjectives": OBJECTIVES,
            "modelServers": Section(
                {
                    "type": SERVER_TYPE,
                    "protocol": choice("http", "grpc"),
                    "matchLabels": Free(SCALAR),
                    "selector": TEXT,
                    "targetPorts": TARGET_PORTS,
                    "targetPortNumber": PORT,
                }
            ),
            "latencyPredictor": Section(
                {
                    "enabled": LATENCY_PREDICTOR,
                    "trainingServer": Free(),
                    "predictionServers": Free(),
                    "eppEnv": Free(),
                    "routing": Free(),
                }
            ),
        }
    ),
    "httpRoute": Section({"create": BOOLEAN, **ROUTE}),
}
