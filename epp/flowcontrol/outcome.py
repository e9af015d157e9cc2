"""How a request's time in the queues ended."""

from __future__ import annotations

from enum import Enum


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
