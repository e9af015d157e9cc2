"""Full is what we sent: exact, at once, and blind to what the engine makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from epp.flowcontrol.saturation import SaturationDetector
from scorers.base import Candidate, Request


class ConcurrencyParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How much one endpoint takes."""

    concurrency_mode: Literal["requests", "tokens", "hybrid"] = "requests"
    max_concurrency: Annotated[int, msgspec.Meta(ge=1)] = 100
    max_token_concurrency: Annotated[int, msgspec.Meta(ge=1)] = 1_000_000
    headroom: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0
    """How far above that the filter lets an endpoint go, as a share of it."""


class ConcurrencyDetector(SaturationDetector[ConcurrencyParameters]):
    """What is in flight over what all endpoints together take, in requests or prompt tokens; hybrid: the mean over the
    endpoints of the larger of the two.

    Reads: Candidate.in_flight, and in_flight_tokens: prompt tokens that are still to be computed.
    """

    type_name = "concurrency-detector"
    Parameters = ConcurrencyParameters

    def saturation(self, candidates: Sequence[Candidate]) -> float:
        """The share."""
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
        """Those that are not full; none when all are, so that the limit holds."""
        limit = 1.0 + self.parameters.headroom
        return [c for c in candidates if self.saturation((c,)) < limit]
