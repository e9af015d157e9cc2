"""Whether a row of numbers grows: a line that outliers cannot tilt, and how sure its slope is.

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
    """Change per unit of x: the estimate, and the 95 % interval around it."""

    slope: float
    low: float
    high: float

    def grows(self, over: float, by: float) -> bool:
        """Whether it surely rises, and by more than ``by`` over that much of x."""
        return self.low > 0 and self.slope * over > by


def trend(xs: Sequence[float], ys: Sequence[float]) -> Trend:
    """The line through the points. Raises: ValueError for fewer than three."""
    n = len(xs)
    if n < 3 or n != len(ys):
        raise ValueError(f"{n} and {len(ys)} numbers; three of each at least are needed")
    slopes = sorted((ys[j] - ys[i]) / (xs[j] - xs[i]) for i, j in combinations(range(n), 2))
    half = Z95 * math.sqrt(n * (n - 1) * (2 * n + 5) / 18) / 2
    middle = len(slopes) / 2
    low, high = max(0, math.floor(middle - half)), min(len(slopes) - 1, math.ceil(middle + half))
    return Trend(statistics.median(slopes), slopes[low], slopes[high])
