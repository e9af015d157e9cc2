"""Leave out endpoints by a number that they themselves report."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from enum import Enum
from math import ceil, inf, isfinite

import msgspec

from scorers.base import Candidate, Filter, Request
from scorers.parameters import check_range, check_written

Accepts = Callable[[float], bool]
Values = Sequence[float]


class Missing(Enum):
    """What happens to an endpoint without the attribute."""

    PASS = "Pass"  # noqa: S105
    FAIL = "Fail"


class Comparison(Enum):
    """How an endpoint's value is compared with the configured one."""

    LESS = "LessThan"
    LESS_OR_EQUAL = "LessThanOrEqual"
    GREATER = "GreaterThan"
    GREATER_OR_EQUAL = "GreaterThanOrEqual"
    EQUAL = "Equal"
    NOT_EQUAL = "NotEqual"


COMPARE: dict[Comparison, Callable[[float, float], bool]] = {
    Comparison.LESS: operator.lt,
    Comparison.LESS_OR_EQUAL: operator.le,
    Comparison.GREATER: operator.gt,
    Comparison.GREATER_OR_EQUAL: operator.ge,
    Comparison.EQUAL: operator.eq,
    Comparison.NOT_EQUAL: operator.ne,
}


class Threshold(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Keeps the values for which the comparison with ``value`` is true."""

    operator: Comparison
    value: float

    def among(self, values: Values) -> Accepts:  # noqa: ARG002
        """Return the test that a candidate's value must pass."""
        compare, value = COMPARE[self.operator], self.value
        return lambda other: compare(other, value)


class Range(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Keeps the values from ``min`` to ``max``, both included."""

    min: float
    max: float

    def __post_init__(self) -> None:
        if not self.min <= self.max:
            raise ValueError(f"min is {self.min} and max {self.max}; min must not be above max")

    def among(self, values: Values) -> Accepts:  # noqa: ARG002
        """Return the test that a candidate's value must pass."""
        return lambda value: self.min <= value <= self.max


class TopK(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Keeps the ``k`` best values, and those that equal the last of them."""

    k: int
    higher_is_better: bool = True

    def __post_init__(self) -> None:
        check_range("k", self.k, 1)

    def among(self, values: Values) -> Accepts:
        """Return the test that a candidate's value must pass."""
        ranked = sorted(values, reverse=self.higher_is_better)
        return _as_good_as(ranked[min(self.k, len(ranked)) - 1], self.higher_is_better)


class Percentile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Keeps the values on the better side of a percentile, including the percentile itself."""

    percentile: float
    higher_is_better: bool = True

    def __post_init__(self) -> None:
        check_range("percentile", self.percentile, 0, 100)

    def among(self, values: Values) -> Accepts:
        """Return the test that a candidate's value must pass; the percentile is the nearest rank."""
        rank = max(1, ceil(self.percentile / 100 * len(values)))
        return _as_good_as(sorted(values)[rank - 1], self.higher_is_better)


def _as_good_as(cutoff: float, higher_is_better: bool) -> Accepts:
    if higher_is_better:
        return lambda value: value >= cutoff
    return lambda value: value <= cutoff


Rule = Threshold | Range | TopK | Percentile


class RuleType(Enum):
    """The rule that applies; its parameters have a key of the same name."""

    THRESHOLD = "threshold"
    RANGE = "range"
    TOP_K = "topK"
    PERCENTILE = "percentile"


class FilterAlgorithm(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One rule: its type, and its parameters."""

    type: RuleType | None = None
    threshold: Threshold | None = None
    range: Range | None = None
    top_k: TopK | None = None
    percentile: Percentile | None = None

    def __post_init__(self) -> None:
        rules = self._rules()
        for other, rule in rules.items():
            if rule is not None and other is not self.type:
                raise ValueError(f"{other.value} belongs to type {other.value}, and type says {self._title}")
        if self.type is not None and rules[self.type] is None:
            raise ValueError(f"{self._title}: missing; type {self._title} needs it")

    @property
    def rule(self) -> Rule | None:
        """The rule of the configured type."""
        return None if self.type is None else self._rules()[self.type]

    @property
    def _title(self) -> str:
        return "nothing" if self.type is None else self.type.value

    def _rules(self) -> dict[RuleType, Rule | None]:
        return dict(zip(RuleType, (self.threshold, self.range, self.top_k, self.percentile), strict=True))


class AttributeFilterParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Which attribute is read, and which rule it must pass; ``attribute`` and ``algorithm`` are required."""

    attribute: str = ""
    producer: str | None = None
    """The name of the ``core-metrics-extractor`` that reads the attribute."""
    on_missing: Missing = Missing.PASS
    fallback_on_empty: bool = False
    """Whether to keep all candidates if none would be left."""
    algorithm: FilterAlgorithm = FilterAlgorithm()


class EndpointAttributeFilter(Filter[AttributeFilterParameters]):
    """Keep the endpoints whose attribute a rule accepts: a threshold, a range, the k best, or a percentile.

    Reads: Candidate.attributes.
    """

    type_name = "endpoint-attribute-filter"
    Parameters = AttributeFilterParameters

    def __init__(self, parameters: AttributeFilterParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        if parameters is not None:
            check_written("attribute", parameters.attribute)
            check_written("algorithm.type", parameters.algorithm.type)
        self._rule = self.parameters.algorithm.rule or Range(-inf, inf)
        self._passes = self.parameters.on_missing is Missing.PASS

    def keep(self, request: Request, candidates: Sequence[Candidate]) -> Sequence[Candidate]:  # noqa: ARG002
        """Return the candidates that the rule accepts; ``onMissing`` decides on those without the attribute."""
        key, passes = self.parameters.attribute, self._passes
        values = [c.attributes.get(key) for c in candidates]
        finite = [value for value in values if value is not None and isfinite(value)]
        accepts = self._rule.among(finite) if finite else None
        kept = [
            c
            for c, value in zip(candidates, values, strict=True)
            if (passes if value is None or not isfinite(value) or accepts is None else accepts(value))
        ]
        return candidates if not kept and self.parameters.fallback_on_empty else kept
