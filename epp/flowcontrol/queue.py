"""One flow's queue, and the state of a queued request."""

from __future__ import annotations

from enum import Enum
from heapq import heapify, heappop, heappush
from typing import Protocol

from epp.flowcontrol.admission import Arrival, Resume

LATE_S = 1.0
"""How late an expiry may be. A guess: four rounds of the expiry timer."""
FEW = 64
"""Number of entries that are gone and may stay in a queue before it is compacted. A guess."""


class QueueOutcome(Enum):
    """How a request left the queues, in the words that the Go picker uses as metric labels."""

    DISPATCHED = "Dispatched"
    REJECTED_CAPACITY = "RejectedCapacity"
    REJECTED_NO_ENDPOINTS = "RejectedNoEndpoints"
    REJECTED_OTHER = "RejectedOther"
    EVICTED_TTL = "EvictedTTL"
    EVICTED_NO_ENDPOINTS = "EvictedNoEndpoints"
    EVICTED_CANCELLED = "EvictedContextCancelled"
    EVICTED_OTHER = "EvictedOther"

    __hash__ = object.__hash__  # members are equal only to themselves; Enum's own is Python code


class Queues(Protocol):
    """The interface of all queues for one queued request."""

    def patience_s(self) -> float:
        """Return the longest possible wait, with a margin."""

    def bound(self, entry: QueueEntry, until_s: float) -> None:
        """Let the queued ``entry`` expire at ``until_s`` at the latest, whatever the settings; called once."""

    def cancelled(self, entry: QueueEntry) -> None:
        """Remove ``entry``, which must be queued, because its client has left."""


class QueueEntry:
    """A queued request. Once it has left the queue, it is ``gone`` and holds no reference to its request."""

    __slots__ = ("arrival", "controller", "enqueued_s", "flow", "resume", "until_s")

    def __init__(self, controller: Queues, arrival: Arrival, resume: Resume, enqueued_s: float, flow: str) -> None:
        self.controller = controller
        self.arrival: Arrival = arrival
        self.resume: Resume | None = resume
        self.enqueued_s = enqueued_s
        self.flow = flow
        """The flow in its band."""
        self.until_s: float | None = None
        """The time at which it expires whatever the settings; None if only the settings limit its wait."""

    @property
    def gone(self) -> bool:
        """Whether it was dispatched, refused or cancelled."""
        return self.resume is None

    def patience_s(self) -> float:
        """Return how long the proxy must wait; called once. The entry expires before that, even if new settings allow
        longer waits."""
        asked_s = self.controller.patience_s()
        if self.resume is not None and self.until_s is None:
            self.controller.bound(self, self.enqueued_s + asked_s - LATE_S)
        return asked_s

    def cancel(self) -> None:
        """Remove the entry, because its client has left."""
        if self.resume is not None:
            self.controller.cancelled(self)


class FlowQueue:
    """A heap of entries. Those that are gone stay until they reach its top, or until they are the majority.

    Amortized O(log n).
    """

    __slots__ = ("_heap", "size")

    def __init__(self) -> None:
        self.size = 0
        """Number of entries that are not gone."""
        self._heap: list[tuple[float, int, QueueEntry]] = []

    def push(self, key: float, number: int, entry: QueueEntry) -> None:
        """Add ``entry``, behind those with smaller keys; ties go to the smaller number."""
        heappush(self._heap, (key, number, entry))
        self.size += 1

    def head(self) -> QueueEntry:
        """Return the first entry that is not gone. There must be one."""
        heap = self._heap
        while heap[0][2].resume is None:
            heappop(heap)
        return heap[0][2]

    def forget(self) -> None:
        """Uncount one entry that is gone now."""
        self.size -= 1
        if len(self._heap) > 2 * self.size + FEW:
            self._heap = [item for item in self._heap if item[2].resume is not None]
            heapify(self._heap)
