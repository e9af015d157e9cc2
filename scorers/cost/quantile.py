"""A running median, without the numbers being kept."""

from __future__ import annotations

from math import isfinite


class Median:
    """Median of positive numbers, in which later numbers weigh more. Half of the numbers may be wrong.

    Each number moves the median up or down by a share of itself; the share shrinks as more numbers are seen.
    Source: stochastic approximation of a quantile (Robbins and Monro), on a logarithmic scale.
    """

    __slots__ = ("count", "value")

    def __init__(self, start: float) -> None:
        self.value = start
        self.count = 0

    def observe(self, number: float, least: float, most: float) -> None:
        """Move the median towards ``number``, but not out of the range from ``least`` to ``most``."""
        if not (isfinite(number) and number > 0.0):
            return
        self.count += 1
        step = 1.0 + max(0.02, 1.0 / self.count)
        if number > self.value:
            self.value = min(self.value * step, max(number, self.value))
        else:
            self.value = max(self.value / step, min(number, self.value))
        self.value = min(most, max(least, self.value))
