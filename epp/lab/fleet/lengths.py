"""Lengths of prompts and answers: a number, or drawn from a distribution."""

from __future__ import annotations

from enum import Enum
from math import exp, isclose, log, sqrt
from random import Random
from typing import TypeAlias

import msgspec

MOST_TOKENS = 1 << 24
"""The most tokens of a prompt or an answer: more than any model takes, but four bytes for each still fit in memory."""


class Shape(Enum):
    """The kind of a distribution, under inference-perf's names."""

    FIXED = "fixed"
    UNIFORM = "uniform"
    NORMAL = "normal"
    LOGNORMAL = "lognormal"


class Distribution(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A random length. Draws are clipped to ``min`` and ``max``; ``mean`` and ``std_dev`` are those before clipping."""

    type: Shape = Shape.NORMAL
    min: int = 10
    max: int = 1024
    mean: float = 512.0
    std_dev: float = 200.0
    variance: float | None = None
    """The square of ``std_dev``, which inference-perf writes beside it."""
    skew: float = 0.0
    total_count: int | None = None
    """Unused: inference-perf draws this many lengths in advance."""

    def __post_init__(self) -> None:
        if not 0 <= self.min <= self.max <= MOST_TOKENS:
            raise ValueError(f"min: is {self.min} and max {self.max}; 0 <= min <= max <= {MOST_TOKENS}")
        if not 0 <= self.std_dev <= MOST_TOKENS:
            raise ValueError(f"std_dev: is {self.std_dev}; 0 to {MOST_TOKENS}")
        if not abs(self.mean) <= MOST_TOKENS:
            raise ValueError(f"mean: is {self.mean}; at most {MOST_TOKENS}")
        if self.variance is not None and not isclose(self.variance, self.std_dev**2, rel_tol=1e-6):
            raise ValueError(
                f"variance: is {self.variance:g}, and std_dev {self.std_dev:g}, whose square is {self.std_dev**2:g}; "
                "write std_dev alone"
            )
        if self.skew:
            raise ValueError(f"skew: is {self.skew:g}; skewed distributions are not simulated")
        if self.type is Shape.LOGNORMAL and self.mean <= 0:
            raise ValueError(f"mean: is {self.mean}; above 0 for a lognormal distribution")

    def draw(self, random: Random) -> float:
        """Return a random value within the bounds."""
        return min(float(self.max), max(float(self.min), self._unbounded(random)))

    def _unbounded(self, random: Random) -> float:
        if self.type is Shape.UNIFORM:
            return random.uniform(self.min, self.max)
        if self.type is Shape.NORMAL:
            return random.gauss(self.mean, self.std_dev)
        if self.type is Shape.LOGNORMAL:
            spread = log(1 + (self.std_dev / self.mean) ** 2)
            return exp(random.gauss(log(self.mean) - spread / 2, sqrt(spread)))
        return self.mean


Length: TypeAlias = int | Distribution
"""Units: tokens."""


def tokens(length: Length, random: Random) -> int:
    """Draw a number of tokens; at least 1."""
    return max(1, length if isinstance(length, int) else round(length.draw(random)))
