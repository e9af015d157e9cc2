"""Pods as the API server writes them, for the tests of discovery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from epp.kube.objects import Decoder, Pod

ACTIVE = "llm-d.ai/active-ports"


def written(
    name: str = "vllm-0",
    *,
    ip: str = "10.0.0.1",
    uid: str = "",
    ready: str = "True",
    phase: str = "Running",
    created: str = "2026-11-22T10:00:00Z",
    started: str = "2026-11-22T10:00:10Z",
    deleted: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    declared: Sequence[int] = (8000,),
) -> dict[str, Any]:
    """Return a pod with one container, ``vllm``, beside which an init container has ended."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid or f"uid-of-{name}",
            "creationTimestamp": created,
            "deletionTimestamp": deleted,
            "labels": dict(labels or {"app": "vllm"}),
            "annotations": annotations,
        },
        "spec": {
            "nodeName": "node-1",
            "containers": [{"name": "vllm", "ports": [{"containerPort": port} for port in declared]}],
            "initContainers": [{"name": "download"}],
        },
        "status": {
            "phase": phase,
            "podIP": ip,
            "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": ready}],
            "containerStatuses": [{"name": "vllm", "state": {"running": {"startedAt": started}}}],
            "initContainerStatuses": [{"name": "download", "state": {"terminated": {"exitCode": 0}}}],
        },
    }


def pod(name: str = "vllm-0", **fields: Any) -> Pod:
    """Return ``written`` as the client decodes it."""
    return Decoder(Pod).decode(msgspec.json.encode(written(name, **fields)))
