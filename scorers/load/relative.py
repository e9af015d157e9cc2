"""Counts of work turned into scores, relative to the other candidates."""

from __future__ import annotations

from collections.abc import Sequence

MANY = 32
"""From so many on, counts are looked up once for each number there is: of a thousand candidates it takes half the
time, of eight twice."""


def least_is_best(counts: Sequence[int]) -> list[float]:
    """(most - count) / (most - least) for each count; 1.0 for all when they are equal."""
    different = set(counts) if len(counts) >= MANY else counts
    most, least = max(different, default=0), min(different, default=0)
    if most == least:
        return [1.0] * len(counts)
    span = most - least
    if different is counts:
        return [(most - count) / span for count in counts]
    scores = {count: (most - count) / span for count in different}
    return list(map(scores.__getitem__, counts))
