"""Objectives and rewrites as a manifest writes them."""

from __future__ import annotations

from typing import Any

import msgspec

from epp.kube.groups import GROUP
from epp.kube.objects_inference import InferenceObject
from epp.resources.written import PoolName

POOL = PoolName("pool", (GROUP,))
REF = {"poolRef": {"group": GROUP, "kind": "InferencePool", "name": "pool"}}
LLM_D, LEGACY = 0, 1


def written(
    name: str, spec: dict[str, Any], created: str = "2026-01-01T00:00:00Z", uid: str | None = None
) -> dict[str, Any]:
    """Return an object of this pool as the API server writes it."""
    metadata = {"name": name, "uid": uid or f"uid-{name}", "creationTimestamp": created, "generation": 1}
    return {"metadata": metadata, "spec": {**REF, **spec}}


def item(name: str, spec: dict[str, Any], created: str = "2026-01-01T00:00:00Z") -> InferenceObject:
    """Return an object of this pool as a watch gives it."""
    return msgspec.json.decode(msgspec.json.encode(written(name, spec, created)), type=InferenceObject)


def raw(spec: Any) -> msgspec.Raw:
    """Return a spec as a watch gives it."""
    return msgspec.Raw(msgspec.json.encode(spec))


def rule(*targets: str | tuple[str, int], to: str | None = None) -> dict[str, Any]:
    """Return a rule of a rewrite for the model ``to``, or for every model."""
    made = [{"modelRewrite": t} if isinstance(t, str) else {"modelRewrite": t[0], "weight": t[1]} for t in targets]
    return {"targets": made, **({"matches": [{"model": {"type": "Exact", "value": to}}]} if to else {})}
