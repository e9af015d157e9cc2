"""The parts of values that Kubernetes defines: ports, resources, images, settings of pods."""

from __future__ import annotations

from epp.lab.values.nodes import (
    BOOLEAN,
    COUNT,
    PORT,
    PORT_OR_NAME,
    QUANTITY,
    TEXT,
    WORD,
    Free,
    Listing,
    Section,
    choice,
)

PROTOCOL = choice("TCP", "UDP", "SCTP")
PULL_POLICY = choice("Always", "IfNotPresent", "Never")
SERVICE_PORTS = Listing(
    Section(
        {
            "name": TEXT,
            "port": PORT,
            "protocol": PROTOCOL,
            "targetPort": PORT_OR_NAME,
            "nodePort": PORT,
            "appProtocol": TEXT,
        },
        required=("port",),
    )
)
CONTAINER_PORTS = Listing(
    Section(
        {"name": TEXT, "containerPort": PORT, "protocol": PROTOCOL, "hostPort": PORT, "hostIP": TEXT},
        required=("containerPort",),
    )
)
RESOURCES = Section(
    {
        "requests": Free(QUANTITY),
        "limits": Free(QUANTITY),
        "claims": Listing(Section({"name": WORD, "request": TEXT}, required=("name",))),
    }
)
AUTOSCALING = Section(
    {
        "enabled": BOOLEAN,
        "minReplicas": COUNT,
        "maxReplicas": COUNT,
        "targetCPUUtilizationPercentage": COUNT,
        "targetMemoryUtilizationPercentage": COUNT,
        "behavior": Free(),
        "metrics": Listing(Free()),
    }
)
PULL_SECRETS = Listing(Section({"name": WORD}, required=("name",)))
