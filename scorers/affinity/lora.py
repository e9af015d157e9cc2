"""Send a request where its LoRA adapter is loaded, or where there is room for it."""

from __future__ import annotations

from collections.abc import Sequence

from scorers.base import Candidate, LoraState, NoParameters, Request, Scorer

LOADED, ROOM, QUEUED, NEITHER = 1.0, 0.8, 0.6, 0.0
"""The scores by the state of the adapter. Source: the Go picker's scorer of the same name."""


class LoraAffinityScorer(Scorer[NoParameters]):
    """Score 1 where the adapter runs, 0.8 where another adapter fits, 0.6 where it already waits, else 0.

    A queued adapter scores below free room: waiting behind a swap costs more than loading into a free place.

    Reads: Candidate.lora; Request.target_model, which is the adapter's name.
    """

    type_name = "lora-affinity-scorer"

    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:
        """Return one score per candidate, by the state of the adapter in its engine."""
        adapter = request.target_model
        return [_affinity(adapter, c.lora) for c in candidates]


def _affinity(adapter: str, lora: LoraState) -> float:
    if adapter in lora.running:
        return LOADED
    if len(lora.running) + len(lora.waiting) < lora.max_loras:
        return ROOM
    return QUEUED if adapter in lora.waiting else NEITHER
