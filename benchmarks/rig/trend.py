"""A line through a series of numbers that outliers cannot tilt, and a confidence interval of its slope.

Source: Theil (1950) and Sen (1968): the median of the slopes of all pairs; its interval from Kendall's variance, by
ranks, so that nothing need be normally distributed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

Z95 = 1.96


@dataclass(frozen=True)
class Trend:
    """The change per unit of x: the estimate, and the 95 % interval around it."""

    slope: float
    low: float
    high: float

    def grows(self, over: float, by: float) -> bool:
        """Return whether the whole interval is above 0, and the line rises by more than ``by`` over ``over`` of x."""
        return self.low > 0 and self.slope * over > by


def trend(xs: Sequence[float], ys: Sequence[float]) -> Trend:
    """Return the slope of the line through the points. Raises: ValueError for fewer than three."""
    n = len(xs)
    if n < 3 or n != len(ys):
        raise ValueError(f"{n} and {len(ys)} numbers; three of each at least are needed")
    slopes = sorted((ys[j] - ys[i]) / (xs[j] - xs[i]) for i, j in combinations(range(n), 2))
    half = Z95 * math.sqrt(n * (n - 1) * (2 * n + 5) / 18) / 2
    middle = len(slopes) / 2
    low, high = max(0, math.floor(middle - half)), min(len(slopes) - 1, math.ceil(middle + half))
    return Trend(statistics.median(slopes), slopes[low], slopes[high])
