"""Non-negative constants from observations of which some are wrong: robust, bounded, forgetting least squares.

    seconds ≈ Σ constant[i] × amount[i]

Kept are the normal equations, not the observations: O(k²) memory and time. Each observation is weighed by how far it
is from what was expected, in units of a typical distance that is learned as well: near ones count fully, far ones less,
very far ones not at all. When everything has become far (the engine has changed), the typical distance grows until they
count, and what was seen before fades fast, else slowly. What was known at the start never fades: where nothing is seen
of a constant, it stays what it was, and it cannot run away.

Source: Huber, Robust Statistics (weights); projected Gauss-Seidel for the bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

MEMORY = 400.0
"""Observations after which one counts 1/e. A guess: minutes on a busy endpoint."""
SHORT_MEMORY = 15.0
"""The same once typical distances are ``CHANGED`` times what they were for long."""
CHANGED = 3.0
FAR = 4.0
"""Typical distances beyond which an observation is not believed at all."""
DOUBT = 4.0
"""How many times itself a constant of the start may be off."""
SURE, FAR_AT_FIRST = 40, 20.0
"""Until there are so many observations, the expectation may be what is wrong, and more is believed: but not the one
request that met a cold engine, nor the one that never reached it."""
DOUBTED = 1.0
"""By what share of itself the typical distance grows with each that is not believed at first, but for one alone: where
all are far, the start is wrong, and the next ones count."""
SWEEPS = 4


class BoundedRegression:
    """Owner: one learner. Nothing that is told here can make a constant leave its bounds."""

    def __init__(self, start: Sequence[float], least: Sequence[float], most: Sequence[float]) -> None:
        """Bounds are inclusive."""
        self.constants = list(start)
        self.observations = 0
        self.distance = 3.0
        """The typical distance between what was expected and what came, in units of what was given as usual."""
        self._doubts = 0
        """Of those not believed, how many came last in a row."""
        self._long_distance = 3.0
        """The same over more observations."""
        self._least, self._most = tuple(least), tuple(most)
        self._start = tuple(start)
        self._prior = [1.0 / (DOUBT * (value or 0.01 * high)) ** 2 for value, high in zip(start, most, strict=True)]
        size = range(len(start))
        self._products = [[0.0 for _ in size] for _ in size]
        self._sums = [0.0 for _ in size]

    def expected(self, amounts: Sequence[float]) -> float:
        """What an observation of ``amounts`` should come to."""
        return sum([constant * amount for constant, amount in zip(self.constants, amounts, strict=True)])

    def observe(self, amounts: Sequence[float], seconds: float, usual_error: float, times: float = 1.0) -> bool:
        """Learn; False for what cannot be an observation, or is too far from all others.

        ``times``: how many times farther it is than ``seconds`` say: what was far too fast is off by no more than all
        that was expected, and yet as wrong as what was as many times too slow.
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
        # The first are weighed by an expectation that was not one yet: they fade before the later ones.
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
        """Bring each constant to its best value, the others as they are."""
        constants = self.constants
        for i, row in enumerate(self._products):
            prior = self._prior[i]
            others = sum([a * x for a, x in zip(row, constants, strict=True)]) - row[i] * constants[i]
            best = (self._sums[i] + prior * self._start[i] - others) / (row[i] + prior)
            constants[i] = min(self._most[i], max(self._least[i], best))


def moved(middle: float, number: float, step: float) -> float:
    """``middle``, moved by a share of itself to the side of ``number``; where both sides are as likely, it stays."""
    return min(1e6, max(0.05, middle * (1.0 + step if number > middle else 1.0 - step)))
