"""Whether the pod of a Lease's holder still serves, by what the API has of it."""

from __future__ import annotations

import math
from enum import Enum

from epp.kube.objects import Pod

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


def sight_of(pod: Pod) -> Sight:
    """Return the state of ``pod``."""
    if pod.status.phase in _ENDED:
        return Sight.GONE
    if pod.metadata.deletion_timestamp:
        return Sight.ENDING
    ready = any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions or ())
    return Sight.READY if ready else Sight.UNREADY
