"""Send a request where the fewest others run."""

from __future__ import annotations

from collections.abc import Sequence

from scorers.base import Candidate, NoParameters, Request, Scorer
from scorers.load.relative import least_is_best


class RunningRequestsScorer(Scorer[NoParameters]):
    """Score the smallest batch 1 and the largest 0.

    score[i] = (largest - running[i]) / (largest - smallest), or 1 for all when they are equal.

    Reads: Candidate.running.
    """

    type_name = "running-requests-size-scorer"

    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:  # noqa: ARG002
        """Return one score per candidate, by batch size."""
        return least_is_best([c.running for c in candidates])
