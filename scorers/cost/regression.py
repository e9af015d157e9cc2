"""Non-negative constants from observations of which some are wrong: robust, bounded, forgetting least squares.

    seconds ≈ Σ constant[i] × amount[i]

Only the normal equations are kept, not the observations: O(k²) memory and time. Each observation is weighted by its
distance from what was expected, in units of a typical distance that is learned as well: near ones count fully, far ones
less, very far ones not at all. When all observations have become far (the engine has changed), the typical distance
grows until they count, and earlier observations fade fast; otherwise they fade slowly. The prior never fades: a
constant that nothing is observed of keeps its starting value, and no constant can run away.

Source: Huber, Robust Statistics (weights); projected Gauss-Seidel for the bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

MEMORY = 400.0
"""Number of observations after which an observation counts 1/e. A guess: minutes on a busy endpoint."""
SHORT_MEMORY = 15.0
"""The same, while the typical distance is more than ``CHANGED`` times its long-term value."""
CHANGED = 3.0
FAR = 4.0
"""Observations beyond this many typical distances are rejected."""
DOUBT = 4.0
"""How far a starting constant may be off, as a multiple of itself."""
SURE, FAR_AT_FIRST = 40, 20.0
"""Until there are ``SURE`` observations, the expectation itself may be wrong, and observations up to ``FAR_AT_FIRST``
typical distances are accepted. This still rejects a single request that met a cold engine, or never reached it."""
DOUBTED = 1.0
"""The share of itself by which the typical distance grows with each early observation that is rejected, except for the
first in a row: if all are far, the start is wrong, and the next ones count."""
SWEEPS = 4


class BoundedRegression:
    """Constants that follow observations. Owner: one learner. No observation can move a constant out of its bounds."""

    def __init__(self, start: Sequence[float], least: Sequence[float], most: Sequence[float]) -> None:
        """Start with the constants ``start``; the bounds are inclusive."""
        self.constants = list(start)
        self.observations = 0
        self.distance = 3.0
        """The typical distance between expected and observed seconds, in units of the ``usual_error`` of an
        observation."""
        self._doubts = 0
        """Number of rejected observations in a row, up to the latest."""
        self._long_distance = 3.0
        """The typical distance over more observations."""
        self._least, self._most = tuple(least), tuple(most)
        self._start = tuple(start)
        self._prior = [1.0 / (DOUBT * (value or 0.01 * high)) ** 2 for value, high in zip(start, most, strict=True)]
        size = range(len(start))
        self._products = [[0.0 for _ in size] for _ in size]
        self._sums = [0.0 for _ in size]

    def expected(self, amounts: Sequence[float]) -> float:
        """Return the expected seconds of an observation of ``amounts``."""
        return sum([constant * amount for constant, amount in zip(self.constants, amounts, strict=True)])

    def observe(self, amounts: Sequence[float], seconds: float, usual_error: float, times: float = 1.0) -> bool:
        """Learn from one observation; False if it is impossible, or too far from all others.

        ``times`` multiplies the distance. A time that is much too short differs by no more than the whole expected
        time, and yet is as wrong as a time that is too long by the same factor.
        """
        if not (isfinite(seconds) and usual_error > 0.0 and isfinite(sum(amounts))):
            return False
        distance = abs(seconds - self.expected(amounts)) * times / usual_error
        sure = self.observations >= SURE
        self.observations += 1
        typical = self.distance
        self.distance = moved(typical, distance, 0.05 if sure else 0.15)
        self._long_distance = moved(self._long_distance, distance, 0.005 if sure else 0.15)
        if distance > (FAR if sure else FAR_AT_FIRST) * typical:
            if not sure and self._doubts:
                self.distance = moved(typical, distance, DOUBTED)
            self._doubts += 1
            return False
        self._doubts = 0
        weight = (1.0 if distance <= typical else typical / distance) / usual_error**2
        changed = self.distance > CHANGED * self._long_distance
        # The first ones were weighted by an unreliable expectation, so they fade before the later ones.
        memory = SHORT_MEMORY if changed else min(MEMORY, SHORT_MEMORY + 0.4 * self.observations)
        keep = 1.0 - 1.0 / memory
        for i, (amount, row) in enumerate(zip(amounts, self._products, strict=True)):
            scale = weight * amount
            self._sums[i] = keep * self._sums[i] + scale * seconds
            if scale:
                row[:] = [keep * known + scale * other for known, other in zip(row, amounts, strict=True)]
            else:
                row[:] = [keep * known for known in row]
        for _ in range(SWEEPS):
            self._sweep()
        return True

    def _sweep(self) -> None:
        """Set each constant to its best value, given the others."""
        constants = self.constants
        for i, row in enumerate(self._products):
            prior = self._prior[i]
            others = sum([a * x for a, x in zip(row, constants, strict=True)]) - row[i] * constants[i]
            best = (self._sums[i] + prior * self._start[i] - others) / (row[i] + prior)
            constants[i] = min(self._most[i], max(self._least[i], best))


def moved(middle: float, number: float, step: float) -> float:
    """Return ``middle``, moved by a share of itself towards ``number``.

    If numbers above and below are equally likely, it stays.
    """
    return min(1e6, max(0.05, middle * (1.0 + step if number > middle else 1.0 - step)))
