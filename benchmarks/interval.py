"""How sure is a median?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Interval(NamedTuple):
    """Of a median."""

    low: float
    median: float
    high: float


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """The median, and the order statistics that enclose it with at least ``confidence``. Needs six values or more."""
    ordered = sorted(values)
    count = len(ordered)
    outside, below = 0, 0.0
    while True:
        below += math.comb(count, outside) / 2**count
        if 2 * below > 1 - confidence:
            break
        outside += 1
    if not outside:
        raise ValueError(f"{count} values are too few for an interval of {confidence:.0%}")
    return Interval(ordered[outside - 1], statistics.median(ordered), ordered[count - outside])
