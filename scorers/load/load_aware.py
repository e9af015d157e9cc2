"""Send a request where the queue is short, on a scale that other candidates do not change."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from scorers.base import Candidate, Request, Scorer
from scorers.parameters import check_range

EMPTY = 0.5
"""The score of an endpoint with an empty queue. Source: the Go picker's scorer of the same name."""


class LoadAwareParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The scale of the scores."""

    threshold: int = 128
    """A queue of this many requests counts as full."""

    def __post_init__(self) -> None:
        check_range("threshold", self.threshold, 1)


class LoadAwareScorer(Scorer[LoadAwareParameters]):
    """Score an empty queue 0.5, and one at the threshold or above 0.

    score[i] = 0.5 × (1 - min(waiting[i], threshold) / threshold).

    Reads: Candidate.waiting.
    """

    type_name = "load-aware-scorer"
    Parameters = LoadAwareParameters

    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:  # noqa: ARG002
        """Return one score per candidate, by queue length."""
        threshold = self.parameters.threshold
        return [EMPTY if not c.waiting else EMPTY * (1.0 - min(c.waiting, threshold) / threshold) for c in candidates]
