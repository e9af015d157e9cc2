"""Scores from counts of work, relative to the other candidates."""

from __future__ import annotations

from collections.abc import Sequence

MANY = 32
"""From this many counts on, the score is computed once per distinct count: half the time for a thousand candidates, but
twice for eight."""


def least_is_best(counts: Sequence[int]) -> list[float]:
    """Return (most - count) / (most - least) for each count; 1.0 for all if they are equal."""
    different = set(counts) if len(counts) >= MANY else counts
    most, least = max(different, default=0), min(different, default=0)
    if most == least:
        return [1.0] * len(counts)
    span = most - least
    if different is counts:
        return [(most - count) / span for count in counts]
    scores = {count: (most - count) / span for count in different}
    return list(map(scores.__getitem__, counts))
