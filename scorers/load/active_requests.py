"""Send a request where the fewest of our requests are in flight."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from scorers.base import Candidate, Request, Scorer
from scorers.parameters import check_range


class ActiveRequestParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """When an endpoint counts as idle, and how far below an idle one a busy one is scored."""

    idle_threshold: int = 0
    """An endpoint with at most this many requests in flight counts as idle."""
    max_busy_score: float = 1.0
    """The upper limit for the score of an endpoint that is not idle."""
    in_flight_load_producer_name: str | None = None
    """Accepted for compatibility: the name of an ``inflight-load-producer``. All of them stand for the same counts."""
    request_timeout: str | None = None
    """Deprecated, and without effect: a request in flight is counted until it ends."""

    def __post_init__(self) -> None:
        check_range("idleThreshold", self.idle_threshold, 0)
        check_range("maxBusyScore", self.max_busy_score, 0, 1)


class ActiveRequestScorer(Scorer[ActiveRequestParameters]):
    """Score an idle endpoint 1, the busiest 0.

    score[i] = 1 where in_flight[i] <= idle_threshold, else max_busy_score × (most - in_flight[i]) / most.

    Reads: Candidate.in_flight, which is exact.
    """

    type_name = "active-request-scorer"
    Parameters = ActiveRequestParameters

    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:  # noqa: ARG002
        """Return one score per candidate, by requests in flight."""
        counts = [c.in_flight for c in candidates]
        idle, most = self.parameters.idle_threshold, max(counts)
        if most <= idle:
            return [1.0] * len(counts)
        scale = self.parameters.max_busy_score / most
        return [1.0 if count <= idle else (most - count) * scale for count in counts]
