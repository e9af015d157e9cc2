"""Whether the pod of a Lease's holder still serves, by what the API has of it."""

from __future__ import annotations

import math
from enum import Enum
from typing import NamedTuple

from epp.kube.objects import Pod

REVISIONS = ("pod-template-hash", "controller-revision-hash")
"""The labels by which a Deployment and a StatefulSet name the template that a pod was made from."""
_ENDED = ("Succeeded", "Failed")


class Sight(Enum):
    """The state of the holder's pod, as the API has it."""

    READY = "ready"
    UNREADY = "not ready"
    ENDING = "ending"
    """It is being deleted."""
    GONE = "gone"
    """It is deleted, or has ended."""


class HolderPod:
    """One holder's pod. A pod that was never seen shows nothing: its holder may run outside of the cluster."""

    def __init__(self, patience_s: float, held_at: float = -math.inf) -> None:
        """``held_at`` is when it became the holder; a standby needs up to ``patience_s`` to become ready then."""
        self._ready_by = held_at + patience_s
        self._sight: Sight | None = None
        self._fails_at = math.inf
        self.is_older = False
        """Whether it was made from an older template than this picker's pod, which is to replace it."""

    @property
    def ended(self) -> bool:
        """Whether the pod is gone, and its holder with it."""
        return self._sight is Sight.GONE

    def fails(self, now: float) -> bool:
        """Return whether the pod does not serve: gone, ending, or not ready after it was, or for too long."""
        return now >= self._fails_at

    def saw(self, sight: Sight, now: float) -> None:
        """Take the state that the API has now. Gone is final: a later pod of this name has another holder."""
        before, self._sight = self._sight, sight
        if before is Sight.GONE or (before is None and sight is Sight.GONE):
            self._sight = before
        elif sight is Sight.READY:
            self._fails_at = math.inf
            self._ready_by = -math.inf
        elif sight is Sight.UNREADY:
            self._fails_at = min(self._fails_at, max(now, self._ready_by))
        else:
            self._fails_at = min(self._fails_at, now)


class Revision(NamedTuple):
    """The template that a pod was made from, and when."""

    template: str
    created: str
    """As the API server writes it, so that text is ordered as the times are."""


def revision_of(pod: Pod) -> Revision | None:
    """Return the revision of ``pod``; None if it is not made by what names templates."""
    labels = pod.metadata.labels or {}
    template = next((labels[name] for name in REVISIONS if name in labels), "")
    return Revision(template, pod.metadata.creation_timestamp) if template else None


def is_older(one: Revision | None, other: Revision | None) -> bool:
    """Return whether ``one`` is of another template than ``other`` and was made before it."""
    return one is not None and other is not None and one.template != other.template and one.created < other.created


def sight_of(pod: Pod) -> Sight:
    """Return the state of ``pod``."""
    if pod.status.phase in _ENDED:
        return Sight.GONE
    if pod.metadata.deletion_timestamp:
        return Sight.ENDING
    ready = any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions or ())
    return Sight.READY if ready else Sight.UNREADY
