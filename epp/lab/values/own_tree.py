"""The keys that only Tierwise has: ``tierwise``."""

from __future__ import annotations

from collections.abc import Mapping

from epp.lab.values.kubernetes import PULL_SECRETS
from epp.lab.values.nodes import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    DURATION,
    INT_OR_PERCENT,
    LABELS,
    OBJECTS,
    QUANTITY,
    TEXT,
    Either,
    Leaf,
    Listing,
    Node,
    Section,
    choice,
)

OWN: Mapping[str, Node] = {
    "tierwise": Section(
        {
            "image": Section({"registry": TEXT, "repository": TEXT, "tag": TEXT}),
            "highAvailability": choice("election", "active"),
            "preStopSeconds": COUNT,
            "drainSeconds": COUNT,
            "checkConfiguration": Section({"beforeStart": BOOLEAN, "helmTest": BOOLEAN}),
            "indexSnapshot": Section({"enabled": BOOLEAN, "interval": DURATION, "volume": ANYTHING, "fsGroup": COUNT}),
            "openPaths": Listing(TEXT),
            "envoy": Section({"maxConnections": Leaf(("integer",), minimum=1), "maxMemory": QUANTITY}),
            "crds": Section({"install": BOOLEAN}),
            "rights": Section({"writeStatus": BOOLEAN, "readNodes": BOOLEAN}),
            "serviceAccount": Section({"create": BOOLEAN, "name": TEXT, "annotations": LABELS}),
            "networkPolicy": Section(
                {"enabled": BOOLEAN, "gateways": OBJECTS, "monitoring": OBJECTS, "clients": OBJECTS}
            ),
            "podDisruptionBudget": Section({"enabled": BOOLEAN, "maxUnavailable": INT_OR_PERCENT}),
            "podLabels": LABELS,
            "nodeSelector": LABELS,
            "topologySpreadConstraints": OBJECTS,
            "priorityClassName": TEXT,
            "imagePullSecrets": PULL_SECRETS,
            "extraObjects": Listing(Either((TEXT, ANYTHING))),
        }
    )
}
