"""Pickers, which turn total scores into a choice and its fallbacks."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from math import inf, log
from random import Random
from typing import Annotated

import msgspec

from scorers.base import Candidate, Picker

PASSES = 4
"""Up to this many endpoints are picked by one pass each: 3 µs for 100 candidates, where sorting them takes 40."""


class PickerParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How many endpoints a pick names."""

    max_num_of_endpoints: Annotated[int, msgspec.Meta(ge=1)] = 1
    """The choice and its fallbacks, which the proxy tries in order when the choice does not answer."""


class DrawingPicker(Picker[PickerParameters]):
    """A picker that makes random choices, with its own generator unless it is given one."""

    Parameters = PickerParameters

    def __init__(
        self, parameters: PickerParameters | None = None, name: str = "", random: Random | None = None
    ) -> None:
        super().__init__(parameters, name)
        self._random = random or Random()


class MaxScorePicker(DrawingPicker):
    """Pick the highest total score; ties go to the fewest of our requests in flight, then to a random candidate.

    A random tie-break alone sends bursts of cold requests to the same endpoint too often.
    """

    type_name = "max-score-picker"

    def pick(self, candidates: Sequence[Candidate], scores: Sequence[float]) -> list[int]:
        """Return the positions of the best ``max_num_of_endpoints`` candidates, best first."""
        wanted = min(self.parameters.max_num_of_endpoints, len(candidates))
        if wanted == 1:
            return [self._best(candidates, scores)]
        if wanted > PASSES:
            draw = self._random.random
            ranked = [
                (-score, c.in_flight, draw(), i) for i, (score, c) in enumerate(zip(scores, candidates, strict=True))
            ]
            return [i for *_, i in sorted(ranked)[:wanted]]
        left = list(scores)
        picks = []
        for _ in range(wanted):
            pick = self._best(candidates, left)
            left[pick] = -inf
            picks.append(pick)
        return picks

    def _best(self, candidates: Sequence[Candidate], scores: Sequence[float]) -> int:
        top = max(scores)
        if scores.count(top) == 1:
            return scores.index(top)
        equal = [i for i, score in enumerate(scores) if score == top]
        loads = [candidates[i].in_flight for i in equal]
        fewest = min(loads)
        if loads.count(fewest) == 1:
            return equal[loads.index(fewest)]
        return self._random.choice([i for i, load in zip(equal, loads, strict=True) if load == fewest])


class RandomPicker(DrawingPicker):
    """Pick at random, and random fallbacks, whatever the scores: the baseline to compare with."""

    type_name = "random-picker"

    def pick(self, candidates: Sequence[Candidate], scores: Sequence[float]) -> list[int]:  # noqa: ARG002
        """Return distinct positions in random order."""
        return self._random.sample(range(len(candidates)), min(self.parameters.max_num_of_endpoints, len(candidates)))


class WeightedRandomPicker(DrawingPicker):
    """Pick at random, each endpoint with a probability equal to its share of the total score.

    Fallbacks are drawn in the same way from the remaining endpoints. Endpoints that score 0 or less come after all
    others, in random order.

    Source: Efraimidis and Spirakis, "Weighted random sampling with a reservoir" (A-Res): the largest U ** (1 / score)
    first. It is computed as the smallest -log(U) / score, which does not vanish for small scores.
    """

    type_name = "weighted-random-picker"

    def pick(self, candidates: Sequence[Candidate], scores: Sequence[float]) -> list[int]:
        """Return distinct positions, drawn with probabilities proportional to the scores."""
        wanted = min(self.parameters.max_num_of_endpoints, len(candidates))
        draw = self._random.random
        keys = [
            (-log(1.0 - draw()) / score, 0.0) if score > 0.0 else (inf, draw())  # 1 - U is never 0
            for score in scores
        ]
        if wanted == 1:
            return [min(range(len(keys)), key=keys.__getitem__)]
        return nsmallest(wanted, range(len(keys)), key=keys.__getitem__)
