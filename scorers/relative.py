"""Counts of work turned into scores, relative to the other candidates."""

from __future__ import annotations

from collections.abc import Sequence


def least_is_best(counts: Sequence[int]) -> list[float]:
    """(most - count) / (most - least) for each count; 1.0 for all when they are equal."""
    most, least = max(counts, default=0), min(counts, default=0)
    if most == least:
        return [1.0] * len(counts)
    span = most - least
    return [(most - count) / span for count in counts]
