"""The keys of the chart ``modelserver``, which has one tree of its own."""

from __future__ import annotations

from collections.abc import Mapping

from epp.lab.values.kubernetes import PULL_POLICY, PULL_SECRETS
from epp.lab.values.nodes import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    DURATION,
    LABELS,
    OBJECTS,
    PORT,
    QUANTITY,
    TEXT,
    WORD,
    WORDS,
    Leaf,
    Node,
    Section,
    choice,
)

_BYTES = Leaf(
    ("string", "integer"),
    pattern=r"[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?",
    example="100Gi (units: Ki, Mi, Gi, Ti, k, M, G, T)",
    minimum=0,
)
_WORKERS = Leaf(("integer",), minimum=1, maximum=64)

MODEL_SERVER: Mapping[str, Node] = {
    "global": ANYTHING,
    "model": WORD,
    "servedModelName": TEXT,
    "replicas": COUNT,
    "cache": Section({"connector": choice("kvengine", "offloading", "lmcache", "none"), "cpu": _BYTES}),
    "parallelism": Section({"tensor": _WORKERS, "data": _WORKERS}),
    "accelerator": TEXT,
    "resources": Section({"cpu": QUANTITY, "memory": _BYTES, "shm": _BYTES}),
    "image": Section({"repository": TEXT, "tag": TEXT, "pullPolicy": PULL_POLICY}),
    "kvengine": Section(
        {"image": Section({"repository": WORD, "tag": TEXT, "pullPolicy": PULL_POLICY}), "settings": ANYTHING}
    ),
    "args": WORDS,
    "env": OBJECTS,
    "role": WORD,
    "labels": LABELS,
    "huggingFace": Section({"secretName": WORD, "secretKey": WORD}),
    "port": PORT,
    "terminationGracePeriodSeconds": COUNT,
    "monitoring": Section({"enabled": BOOLEAN, "interval": DURATION}),
    "podAnnotations": LABELS,
    "imagePullSecrets": PULL_SECRETS,
    "nodeSelector": LABELS,
    "tolerations": OBJECTS,
    "affinity": ANYTHING,
    "topologySpreadConstraints": OBJECTS,
    "priorityClassName": TEXT,
    "volumes": OBJECTS,
    "volumeMounts": OBJECTS,
}
