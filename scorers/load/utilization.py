"""Leave out the endpoints that have too much to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from operator import attrgetter

import msgspec

from scorers.base import Candidate, Filter, Request
from scorers.parameters import check_range, check_written


class Metric(Enum):
    """A measure of an endpoint's work."""

    ACTIVE_REQUESTS = "active-requests"
    RUNNING_REQUESTS = "running-requests"
    WAITING_QUEUE = "waiting-queue"
    KV_CACHE_UTILIZATION = "kv-cache-utilization"

    __hash__ = object.__hash__


READ: dict[Metric, Callable[[Candidate], float]] = {
    Metric.ACTIVE_REQUESTS: attrgetter("in_flight"),
    Metric.RUNNING_REQUESTS: attrgetter("running"),
    Metric.WAITING_QUEUE: attrgetter("waiting"),
    Metric.KV_CACHE_UTILIZATION: attrgetter("kv_usage"),
}


class Condition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The most that one measure of an endpoint may be."""

    metric: Metric
    max_value: float

    def __post_init__(self) -> None:
        check_range("maxValue", self.max_value, 0)


class UtilizationParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The conditions, all of which must hold; at least one is required."""

    conditions: tuple[Condition, ...] = ()
    fallback_on_empty: bool = False
    """Whether to keep all candidates if none would be left."""


class UtilizationFilter(Filter[UtilizationParameters]):
    """Keep the endpoints at which every measure is within its condition.

    Reads: Candidate.in_flight, running, waiting, kv_usage.
    """

    type_name = "utilization-filter"
    Parameters = UtilizationParameters

    def __init__(self, parameters: UtilizationParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        if parameters is not None:
            check_written("conditions", parameters.conditions)
        self._limits = [(READ[c.metric], c.max_value) for c in self.parameters.conditions]

    def keep(self, request: Request, candidates: Sequence[Candidate]) -> Sequence[Candidate]:  # noqa: ARG002
        """Return the candidates within every limit."""
        kept = candidates
        for read, most in self._limits:
            kept = [c for c in kept if read(c) <= most]
        return candidates if not kept and self.parameters.fallback_on_empty else kept
