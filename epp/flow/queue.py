"""One flow's requests in their order, and what is kept of each while it waits."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from epp.admission import Arrival, Resume

if TYPE_CHECKING:
    from epp.flow.controller import FlowController

FOREVER_S, LATE_S = 3600.0, 1.0
"""What stands for no limit, and how late an answer may be. Guesses: more than clients have patience; four looks."""
FEW = 64
"""Entries that are gone are left in place while there are fewer. A guess."""


class Waiting:
    """A request that waits; ``gone`` once it does no more. Then it holds nothing of its request."""

    __slots__ = ("arrival", "controller", "enqueued_s", "flow", "resume")

    def __init__(
        self, controller: FlowController, arrival: Arrival, resume: Resume, enqueued_s: float, flow: str
    ) -> None:
        self.controller = controller
        self.arrival: Arrival = arrival
        self.resume: Resume | None = resume
        self.enqueued_s = enqueued_s
        self.flow = flow
        """Its queue in its band."""

    @property
    def gone(self) -> bool:
        """Whether it was sent on, sent away or cancelled."""
        return self.resume is None

    @property
    def longest_s(self) -> float:
        """How long it may wait at most; a request may always wait for its client."""
        settings = self.controller.settings
        if settings.ttl_s is None:
            return FOREVER_S
        return max(settings.ttl_s, settings.no_endpoint_ttl_s) + LATE_S

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
        self._heap: list[tuple[float, int, Waiting]] = []

    def push(self, key: float, number: int, entry: Waiting) -> None:
        """Put ``entry`` behind those of smaller keys, and of equal ones with smaller numbers."""
        heappush(self._heap, (key, number, entry))
        self.size += 1

    def head(self) -> Waiting:
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
