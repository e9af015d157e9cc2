"""The condition ``Accepted`` of an object's status, as a merge patch that keeps every other condition.

The patch names the version of the object that it was made for, so that the API server refuses it with 409 where the
status has another writer at the same moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from epp.kube.objects_inference import InferenceObject
from epp.resources.verdict import Verdict

TYPE = "Accepted"
MAX_MESSAGE = 32_768
"""The most characters of a message. Source: the schema of conditions in Kubernetes."""


def accepted_patch(item: InferenceObject, verdict: Verdict, now: str) -> dict[str, Any] | None:
    """Return the merge patch that writes ``verdict`` in the status of ``item``; None if it is there already.

    ``now`` is the time as the API writes it, which is the transition's where the condition's status changes.
    """
    conditions = _conditions(item.status)
    before = next((each for each in conditions if each.get("type") == TYPE), None)
    written: dict[str, Any] = {
        "type": TYPE,
        "status": "True" if verdict.accepted else "False",
        "reason": verdict.reason,
        "message": verdict.message[:MAX_MESSAGE],
        "observedGeneration": item.metadata.generation,
    }
    if before is not None:
        if all(before.get(key) == value for key, value in written.items()):
            return None
        if before.get("status") == written["status"]:
            now = before.get("lastTransitionTime") or now
    written["lastTransitionTime"] = now
    after = [written if each is before else each for each in conditions]
    if before is None:
        after.append(written)
    return {"metadata": {"resourceVersion": item.metadata.resource_version}, "status": {"conditions": after}}


def _conditions(status: object) -> list[Mapping[str, Any]]:
    conditions = status.get("conditions") if isinstance(status, dict) else None
    return [each for each in conditions if isinstance(each, dict)] if isinstance(conditions, list) else []
