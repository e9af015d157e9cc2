"""The middle of what was seen, without keeping it."""

from __future__ import annotations

from math import isfinite


class Median:
    """Of positive numbers, those of late more than those of long ago. Half of what comes may be wrong.

    Each number moves it by a share of itself, up or down, whichever side it lies; the share shrinks as more is seen.
    Source: stochastic approximation of a quantile (Robbins and Monro), on a logarithmic scale.
    """

    __slots__ = ("count", "value")

    def __init__(self, start: float) -> None:
        self.value = start
        self.count = 0

    def observe(self, number: float, least: float, most: float) -> None:
        """Move towards ``number``; it never leaves ``least`` to ``most``."""
        if not (isfinite(number) and number > 0.0):
            return
        self.count += 1
        step = 1.0 + max(0.02, 1.0 / self.count)
        if number > self.value:
            self.value = min(self.value * step, max(number, self.value))
        else:
            self.value = max(self.value / step, min(number, self.value))
        self.value = min(most, max(least, self.value))
