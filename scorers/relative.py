"""Counts of work turned into scores, relative to the other candidates."""

from __future__ import annotations

from collections.abc import Sequence


def least_is_best(counts: Sequence[int]) -> list[float]:
    """(most - count) / (most - least) for each count; 1.0 for all when they are equal."""
    distinct = set(counts)  # few, of small numbers: of a thousand endpoints it takes half the time to score each once
    most, least = max(distinct, default=0), min(distinct, default=0)
    if most == least:
        return [1.0] * len(counts)
    span = most - least
    scores = {count: (most - count) / span for count in distinct}
    return [scores[count] for count in counts]
