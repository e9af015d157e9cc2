"""Score by a number that the endpoints themselves report."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from math import isfinite

import msgspec

from scorers.base import Candidate, Request, Scorer
from scorers.parameters import check_written


class Direction(Enum):
    """Which end of the range is better."""

    LOWER = "linear_lower_is_better"
    HIGHER = "linear_higher_is_better"


class FixedRange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The values that score 0 and 1, whatever the candidates report; values outside count as the nearer end."""

    min: float
    max: float

    def __post_init__(self) -> None:
        if not (isfinite(self.min) and isfinite(self.max) and self.min < self.max):
            raise ValueError(f"min is {self.min} and max {self.max}; min must be below max, both finite")


class AdaptiveRange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The range from the lowest to the highest value that the candidates report."""


class Normalization(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """At most one of the two ranges; the default is ``adaptiveRange``."""

    fixed_range: FixedRange | None = None
    adaptive_range: AdaptiveRange | None = None

    def __post_init__(self) -> None:
        if self.fixed_range is not None and self.adaptive_range is not None:
            raise ValueError("fixedRange and adaptiveRange exclude each other; keep one")


class ScoringAlgorithm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a value becomes a score."""

    type: Direction | None = None
    normalization: Normalization = Normalization()


class AttributeScorerParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Which attribute is read, and how it is scored; ``attributeKey`` and ``algorithm.type`` are required."""

    attribute_key: str = ""
    producer: str | None = None
    """The name of the ``core-metrics-extractor`` that reads the attribute."""
    algorithm: ScoringAlgorithm = ScoringAlgorithm()


class EndpointAttributeScorer(Scorer[AttributeScorerParameters]):
    """Score one end of a range 1 and the other 0, linearly between; an endpoint without the attribute 0.

    score[i] = (value[i] - min) / (max - min), or 1 minus that if lower is better. If the range is the candidates' own
    and all have the same value, they all score 1.

    Reads: Candidate.attributes.
    """

    type_name = "endpoint-attribute-scorer"
    Parameters = AttributeScorerParameters

    def __init__(self, parameters: AttributeScorerParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        if parameters is not None:
            check_written("attributeKey", parameters.attribute_key)
            check_written("algorithm.type", parameters.algorithm.type)
        self._key = self.parameters.attribute_key
        self._lower = self.parameters.algorithm.type is Direction.LOWER
        self._fixed = self.parameters.algorithm.normalization.fixed_range

    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:  # noqa: ARG002
        """Return one score per candidate, by its attribute."""
        key = self._key
        values = [c.attributes.get(key) for c in candidates]
        known = [value for value in values if value is not None and isfinite(value)]
        if not known:
            return [0.0] * len(values)
        least, most = (min(known), max(known)) if self._fixed is None else (self._fixed.min, self._fixed.max)
        # Halved first, since the span may overflow. If lower is better, the range is reversed.
        begin, end = (most / 2, least / 2) if self._lower else (least / 2, most / 2)
        span = end - begin
        if not span:
            return [0.0 if value is None or not isfinite(value) else 1.0 for value in values]
        places = [-1.0 if value is None or not isfinite(value) else (value / 2 - begin) / span for value in values]
        return [place if 0.0 <= place <= 1.0 else float(place > 1.0) for place in places]
