"""Send a request where the fewest others wait."""

from __future__ import annotations

from collections.abc import Sequence

from scorers.base import Candidate, NoParameters, Request, Scorer
from scorers.load.relative import least_is_best


class QueueScorer(Scorer[NoParameters]):
    """Score the shortest queue 1 and the longest 0.

    score[i] = (longest - waiting[i]) / (longest - shortest), or 1 for all when they are equal.

    Reads: Candidate.waiting, which counts our own picks since the last scrape, so a burst does not see equal queues.
    """

    type_name = "queue-scorer"

    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:  # noqa: ARG002
        """Return one score per candidate, by queue length."""
        return least_is_best([c.waiting for c in candidates])
