"""The queued requests of one priority, by flow."""

from __future__ import annotations

import math
from collections import OrderedDict

from epp.flowcontrol.admission import Arrival
from epp.flowcontrol.queue import FlowQueue, QueueEntry
from epp.flowcontrol.settings import BandSettings


class Band:
    """The queues of one priority, one per flow.

    Invariant: ``size`` and ``size_bytes`` count the entries that are not gone; no flow is empty; the flows are ordered
    from the least to the most recently served, and a new flow comes last.
    """

    def __init__(self, priority: int, settings: BandSettings) -> None:
        self.priority = priority
        self.settings = settings
        self.size = 0
        self.size_bytes = 0
        self._flows: OrderedDict[str, FlowQueue] = OrderedDict()

    def full(self, size_bytes: int) -> str | None:
        """Return why a request of ``size_bytes`` cannot be queued here, or None if it can."""
        most_bytes, most = self.settings.max_bytes, self.settings.max_requests
        if self.size_bytes + size_bytes > most_bytes:
            return f"{self.size_bytes} bytes wait already, and maxBytes of priority {self.priority} is {most_bytes}"
        if self.size + 1 > most:
            return f"{self.size} requests wait already, and maxRequests of priority {self.priority} is {most}"
        return None

    def add(self, entry: QueueEntry, number: int, ttl_s: float | None) -> None:
        """Queue ``entry``. ``number`` grows with each entry, and breaks ties in the order."""
        queue = self._flows.get(entry.flow)
        if queue is None:
            queue = self._flows[entry.flow] = FlowQueue()
        request = entry.arrival.request
        key = self.settings.ordering.key(request, entry.enqueued_s, math.inf if ttl_s is None else ttl_s)
        queue.push(key, number, entry)
        self.size += 1
        self.size_bytes += entry.arrival.size_bytes

    def head(self, now: float) -> QueueEntry:
        """Return the next entry to dispatch. The band must not be empty."""
        return self._flows[self.settings.fairness.choose(self._flows, now)].head()

    def served(self, entry: QueueEntry) -> None:
        """Move the flow of ``entry`` to the end of the turns."""
        self._flows.move_to_end(entry.flow)

    def forget(self, entry: QueueEntry, arrival: Arrival) -> None:
        """Uncount ``entry``, which has left its queue; ``arrival`` was its request."""
        self.size -= 1
        self.size_bytes -= arrival.size_bytes
        queue = self._flows[entry.flow]
        queue.forget()
        if not queue.size:
            del self._flows[entry.flow]
