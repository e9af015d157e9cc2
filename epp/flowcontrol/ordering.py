"""In which order the requests of one flow go on."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

from scorers.base import NoParameters, Plugin, Request

SLO_TTFT = ("x-llm-d-slo-ttft-ms", "x-slo-ttft-ms")


class OrderingPolicy(Plugin[NoParameters], ABC):
    """Takes no parameters. Of equal keys, the one that came first goes first."""

    @abstractmethod
    def key(self, request: Request, enqueued_s: float, ttl_s: float) -> float:
        """The smallest goes first; fixed once and for all. ``ttl_s`` is infinite where requests may wait for ever."""


class Fcfs(OrderingPolicy):
    """First come, first served."""

    type_name = "fcfs-ordering-policy"

    def key(self, request: Request, enqueued_s: float, ttl_s: float) -> float:  # noqa: ARG002
        """The same for all."""
        return 0.0


class EarliestDeadline(OrderingPolicy):
    """Who would be sent away first goes first."""

    type_name = "edf-ordering-policy"

    def key(self, request: Request, enqueued_s: float, ttl_s: float) -> float:  # noqa: ARG002
        """When it would be sent away."""
        return enqueued_s + ttl_s


class SloDeadline(OrderingPolicy):
    """Who must see a first token soonest goes first; who has said nothing goes last."""

    type_name = "slo-deadline-ordering-policy"

    def key(self, request: Request, enqueued_s: float, ttl_s: float) -> float:  # noqa: ARG002
        """When the first token is due."""
        deadline_ms = next((value for name in SLO_TTFT if (value := request.headers.get(name, "").strip())), "")
        if not (deadline_ms.isascii() and deadline_ms.isdecimal() and len(deadline_ms) <= 12):
            return math.inf
        return request.received_s + int(deadline_ms) / 1000


ORDERINGS: tuple[type[Plugin[Any]], ...] = (Fcfs, EarliestDeadline, SloDeadline)
