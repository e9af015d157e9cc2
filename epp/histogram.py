"""A histogram that costs one bisection to write."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """Counts values in buckets.

    Invariant: ``counts[i]`` values lie in ``(bounds[i-1], bounds[i]]``; the last count is of those above all bounds.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count ``value`` in its bucket."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def copy(self) -> Histogram:
        """Return a copy of the counts at this moment."""
        result = Histogram.__new__(Histogram)
        result.bounds, result.counts, result.total = self.bounds, self.counts.copy(), self.total
        return result

    def add(self, other: Histogram) -> None:
        """Add the counts of ``other``, which has the same bounds."""
        self.counts = [ours + theirs for ours, theirs in zip(self.counts, other.counts, strict=True)]
        self.total += other.total

    def coarser(self, bounds: Sequence[float]) -> Histogram:
        """Return the same counts in the buckets of ``bounds``, which are a subset of this histogram's."""
        result = Histogram(bounds)
        result.total = self.total
        for position, count in enumerate(self.counts):
            beyond = position == len(self.bounds)
            result.counts[len(bounds) if beyond else bisect_left(bounds, self.bounds[position])] += count
        return result
