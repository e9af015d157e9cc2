"""The two detectors of full endpoints: by what the engines report, and by what this picker has sent them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from epp.flowcontrol.saturation import SaturationDetector
from epp.units import Duration
from scorers.base import Candidate, Request


class UtilizationParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The thresholds at which an endpoint is full."""

    queue_depth_threshold: Annotated[int, msgspec.Meta(ge=1)] = 5
    kv_cache_util_threshold: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] = 0.8
    metrics_staleness_threshold: Duration | None = None
    """Validated but unused: ``Candidate.fresh`` tells stale metrics by the real scrape interval."""
    headroom: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0
    """How far above the thresholds an endpoint may be before the filter drops it, as a share of them."""


class UtilizationDetector(SaturationDetector[UtilizationParameters]):
    """Computes the mean over the endpoints of max(waiting / queueDepthThreshold, kv usage / kvCacheUtilThreshold).

    An endpoint whose metrics are stale counts as full, since its load is unknown.
    Reads: Candidate.waiting and kv_usage, which include our own picks since the last scrape, so that a burst that was
    admitted counts before the engine reports it.
    """

    type_name = "utilization-detector"
    Parameters = UtilizationParameters

    def saturation(self, candidates: Sequence[Candidate]) -> float:
        """Return the mean over ``candidates``."""
        depth, usage = self.parameters.queue_depth_threshold, self.parameters.kv_cache_util_threshold
        total = 0.0
        for c in candidates:
            if not c.fresh:
                total += 1.0
                continue
            queue, memory = c.waiting / depth, c.kv_usage / usage
            total += queue if queue > memory else memory
        return total / len(candidates)

    def keep(self, request: Request, candidates: Sequence[Candidate]) -> Sequence[Candidate]:  # noqa: ARG002
        """Return the candidates that are not full, or all of them if all are full."""
        limit = 1.0 + self.parameters.headroom
        kept = [c for c in candidates if c.fresh and self.saturation((c,)) < limit]
        return kept or candidates


class ConcurrencyParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The number of requests or tokens that one endpoint takes."""

    concurrency_mode: Literal["requests", "tokens", "hybrid"] = "requests"
    max_concurrency: Annotated[int, msgspec.Meta(ge=1)] = 100
    max_token_concurrency: Annotated[int, msgspec.Meta(ge=1)] = 1_000_000
    headroom: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0
    """How far above that number an endpoint may be before the filter drops it, as a share of it."""


class ConcurrencyDetector(SaturationDetector[ConcurrencyParameters]):
    """Computes the load in flight over what all endpoints together take, in requests or prompt tokens; hybrid is the
    mean over the endpoints of the larger of the two.

    It is exact and current, since it counts what this picker sent, but does not see how the engine copes with it.

    Reads: Candidate.in_flight, and in_flight_tokens: prompt tokens that are still to be computed.
    """

    type_name = "concurrency-detector"
    Parameters = ConcurrencyParameters

    def saturation(self, candidates: Sequence[Candidate]) -> float:
        """Return the share of the capacity that is in use."""
        parameters = self.parameters
        if parameters.concurrency_mode == "requests":
            return sum([c.in_flight for c in candidates]) / (len(candidates) * parameters.max_concurrency)
        if parameters.concurrency_mode == "tokens":
            return sum([c.in_flight_tokens for c in candidates]) / (len(candidates) * parameters.max_token_concurrency)
        requests, tokens = parameters.max_concurrency, parameters.max_token_concurrency
        total = 0.0
        for c in candidates:
            of_requests, of_tokens = c.in_flight / requests, c.in_flight_tokens / tokens
            total += of_requests if of_requests > of_tokens else of_tokens
        return total / len(candidates)

    def keep(self, request: Request, candidates: Sequence[Candidate]) -> Sequence[Candidate]:  # noqa: ARG002
        """Return the candidates that are not full; none if all are full, so that the limit holds."""
        limit = 1.0 + self.parameters.headroom
        return [c for c in candidates if self.saturation((c,)) < limit]
