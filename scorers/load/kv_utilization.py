"""Send a request where GPU memory for KV is free."""

from __future__ import annotations

from collections.abc import Sequence

from scorers.base import Candidate, NoParameters, Request, Scorer


class KvUtilizationScorer(Scorer[NoParameters]):
    """Score the share of the engine's GPU KV blocks that is free.

    score[i] = 1 - kv_usage[i].

    Reads: Candidate.kv_usage.
    """

    type_name = "kv-cache-utilization-scorer"

    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:  # noqa: ARG002
        """Return one score per candidate, by free KV memory."""
        return [1.0 - c.kv_usage for c in candidates]
