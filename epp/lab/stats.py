"""The mean and the percentile, for all figures of the offline tools."""

from __future__ import annotations

import math
from collections.abc import Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest of ``values`` that at least ``share`` of them do not exceed; NaN for no values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def mean(values: Sequence[float]) -> float:
    """Return the mean of ``values``; NaN for no values."""
    return math.fsum(values) / len(values) if values else math.nan
