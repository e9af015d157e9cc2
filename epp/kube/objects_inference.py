"""InferenceObjective and InferenceModelRewrite: their metadata, the JSON of the spec, and the status as plain data.

The spec is JSON because one object that is not as its schema says must not spoil the list that it is in, and because
most of a large one is never needed: ``epp.resources.written`` reads each spec by itself. The status is plain data
because a write of one condition has to repeat the others.

Source: the CRDs of the Gateway API Inference Extension v1.5.0.
"""

from __future__ import annotations

from typing import Any

import msgspec

from epp.kube.objects import Metadata

GROUPS = ("llm-d.ai", "inference.networking.x-k8s.io")
"""The groups that define both kinds: the current one, then the older one."""
VERSION = "v1alpha2"
"""The version of both kinds in both groups."""
OBJECTIVE, REWRITE = "InferenceObjective", "InferenceModelRewrite"
PLURALS = {OBJECTIVE: "inferenceobjectives", REWRITE: "inferencemodelrewrites"}


class NumberedMetadata(Metadata, frozen=True, rename="camel"):
    """Metadata with the number of changes of the spec."""

    generation: int = 0


class InferenceObject(msgspec.Struct, frozen=True, rename="camel"):
    """An object of one of the two kinds."""

    metadata: NumberedMetadata = NumberedMetadata()
    spec: msgspec.Raw = msgspec.Raw(b"null")
    status: Any = None
