"""One flow's requests in their order, and what is kept of each while it waits."""

from __future__ import annotations

from enum import Enum
from heapq import heapify, heappop, heappush
from typing import Protocol

from epp.flowcontrol.admission import Arrival, Resume

LATE_S = 1.0
"""How late an answer may be. A guess: four looks."""
FEW = 64
"""Entries that are gone are left in place while there are fewer. A guess."""


class QueueOutcome(Enum):
    """The Go picker's words, which are labels of its metrics."""

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
    """All queues, as a request that waits in one of them sees them."""

    def patience_s(self) -> float:
        """The longest that anybody waits, and a little more."""

    def bound(self, entry: QueueEntry, until_s: float) -> None:
        """Send ``entry``, which waits, away at ``until_s`` at the latest, whatever the settings. Called once."""

    def cancelled(self, entry: QueueEntry) -> None:
        """The request of ``entry`` no longer waits; the entry must still be queued."""


class QueueEntry:
    """A request that waits; ``gone`` once it does no more. Then it holds nothing of its request."""

    __slots__ = ("arrival", "controller", "enqueued_s", "flow", "resume", "until_s")

    def __init__(self, controller: Queues, arrival: Arrival, resume: Resume, enqueued_s: float, flow: str) -> None:
        self.controller = controller
        self.arrival: Arrival = arrival
        self.resume: Resume | None = resume
        self.enqueued_s = enqueued_s
        self.flow = flow
        """Its queue in its band."""
        self.until_s: float | None = None
        """When it is sent away at the latest, whatever the settings; None while nothing but they say so."""

    @property
    def gone(self) -> bool:
        """Whether it was sent on, sent away or cancelled."""
        return self.resume is None

    def patience_s(self) -> float:
        """What to ask of a proxy that waits with it, which asks once; it is sent away before that is over, even if the
        settings let others wait for longer."""
        asked_s = self.controller.patience_s()
        if self.resume is not None and self.until_s is None:
            self.controller.bound(self, self.enqueued_s + asked_s - LATE_S)
        return asked_s

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        if self.resume is not None:
            self.controller.cancelled(self)


class FlowQueue:
    """A heap. Entries that are gone stay until they come to its top, or until they are the most. Amortised O(log n)."""

    __slots__ = ("_heap", "size")

    def __init__(self) -> None:
        self.size = 0
        """Entries that are not gone."""
        self._heap: list[tuple[float, int, QueueEntry]] = []

    def push(self, key: float, number: int, entry: QueueEntry) -> None:
        """Put ``entry`` behind those of smaller keys, and of equal ones with smaller numbers."""
        heappush(self._heap, (key, number, entry))
        self.size += 1

    def head(self) -> QueueEntry:
        """Whose turn it is; there must be one."""
        heap = self._heap
        while heap[0][2].resume is None:
            heappop(heap)
        return heap[0][2]

    def forget(self) -> None:
        """One of the entries is gone since."""
        self.size -= 1
        if len(self._heap) > 2 * self.size + FEW:
            self._heap = [item for item in self._heap if item[2].resume is not None]
            heapify(self._heap)
