"""The policies for the order in which the requests of one flow go on."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

from scorers.base import NoParameters, Plugin, Request

SLO_TTFT = ("x-llm-d-slo-ttft-ms", "x-slo-ttft-ms")


class OrderingPolicy(Plugin[NoParameters], ABC):
    """Orders requests by a key; ties go to the request that came first. It has no parameters."""

    @abstractmethod
    def key(self, request: Request, enqueued_s: float, ttl_s: float) -> float:
        """Return the key of ``request``, which never changes; the smallest goes first.

        ``ttl_s`` is infinite if requests may wait for ever.
        """


class Fcfs(OrderingPolicy):
    """Orders requests first come, first served."""

    type_name = "fcfs-ordering-policy"

    def key(self, request: Request, enqueued_s: float, ttl_s: float) -> float:  # noqa: ARG002
        """Return the same key for all requests."""
        return 0.0


class EarliestDeadline(OrderingPolicy):
    """Orders requests by the time at which they expire, the earliest first."""

    type_name = "edf-ordering-policy"

    def key(self, request: Request, enqueued_s: float, ttl_s: float) -> float:  # noqa: ARG002
        """Return the time at which the request expires."""
        return enqueued_s + ttl_s


class SloDeadline(OrderingPolicy):
    """Orders requests by when their first token is due; those without a target come last."""

    type_name = "slo-deadline-ordering-policy"

    def key(self, request: Request, enqueued_s: float, ttl_s: float) -> float:  # noqa: ARG002
        """Return the time at which the first token is due."""
        deadline_ms = next((value for name in SLO_TTFT if (value := request.headers.get(name, "").strip())), "")
        if not (deadline_ms.isascii() and deadline_ms.isdecimal() and len(deadline_ms) <= 12):
            return math.inf
        return request.received_s + int(deadline_ms) / 1000


ORDERINGS: tuple[type[Plugin[Any]], ...] = (Fcfs, EarliestDeadline, SloDeadline)
