"""Scores and filters by the attributes that endpoints report."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scorers.base import Candidate, Request, Slot
from scorers.labels.endpoint_attribute import AttributeScorerParameters, EndpointAttributeScorer
from scorers.labels.endpoint_attribute_filter import AttributeFilterParameters, EndpointAttributeFilter

REQUEST = Request(id="r", model="m", target_model="m")
NAN, INF = float("nan"), float("inf")


def reporting(*values: float | None) -> list[Candidate]:
    return [
        Candidate(slot=Slot(i), address=f"10.0.0.{i}:8000", attributes={} if value is None else {"depth": value})
        for i, value in enumerate(values)
    ]


def scorer(type: str, **normalization: Any) -> EndpointAttributeScorer:  # noqa: A002
    written = {"attributeKey": "depth", "algorithm": {"type": type, "normalization": normalization}}
    return EndpointAttributeScorer(msgspec.convert(written, AttributeScorerParameters))


def test_the_candidates_own_range_is_the_scale() -> None:
    values = reporting(2, 6, 10, None)
    assert scorer("linear_lower_is_better").score(REQUEST, values) == [1.0, 0.5, 0.0, 0.0]
    assert scorer("linear_higher_is_better", adaptiveRange={}).score(REQUEST, values) == [0.0, 0.5, 1.0, 0.0]


def test_equal_values_all_score_1_and_a_missing_one_0() -> None:
    assert scorer("linear_lower_is_better").score(REQUEST, reporting(3, 3, None)) == [1.0, 1.0, 0.0]
    assert scorer("linear_lower_is_better").score(REQUEST, reporting(None, None)) == [0.0, 0.0]


def test_a_fixed_range_clamps_what_is_outside() -> None:
    fixed = scorer("linear_lower_is_better", fixedRange={"min": 0, "max": 4})
    assert fixed.score(REQUEST, reporting(-1, 1, 9)) == [1.0, 0.75, 0.0]


def test_what_is_no_number_counts_as_missing() -> None:
    assert scorer("linear_higher_is_better").score(REQUEST, reporting(NAN, 1, 3, INF, -INF)) == [0, 0, 1, 0, 0]
    assert scorer("linear_higher_is_better").score(REQUEST, reporting(-1.7e308, 0, 1.7e308)) == [0, 0.5, 1]


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ({"algorithm": {"type": "linear_lower_is_better"}}, "attributeKey: missing"),
        ({"attributeKey": "x"}, "algorithm.type: missing"),
        (
            {"attributeKey": "x", "algorithm": {"normalization": {"fixedRange": {"min": 1, "max": 1}}}},
            "min must be below max",
        ),
        (
            {"algorithm": {"normalization": {"fixedRange": {"min": 0, "max": 1}, "adaptiveRange": {}}}},
            "exclude each other",
        ),
    ],
)
def test_a_scorer_that_makes_no_sense_is_refused(written: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        EndpointAttributeScorer(msgspec.convert(written, AttributeScorerParameters))


def kept(values: list[Candidate], rule: str, parameters: dict[str, Any], **written: Any) -> list[int]:
    algorithm = {"type": rule, rule: parameters}
    made = msgspec.convert({"attribute": "depth", "algorithm": algorithm, **written}, AttributeFilterParameters)
    return [c.slot for c in EndpointAttributeFilter(made).keep(REQUEST, values)]


@pytest.mark.parametrize(
    ("operator", "slots"),
    [
        ("LessThan", [0]),
        ("LessThanOrEqual", [0, 1]),
        ("GreaterThan", [2]),
        ("GreaterThanOrEqual", [1, 2]),
        ("Equal", [1]),
        ("NotEqual", [0, 2]),
    ],
)
def test_a_threshold_compares(operator: str, slots: list[int]) -> None:
    assert kept(reporting(1, 2, 3), "threshold", {"operator": operator, "value": 2}) == slots


def test_a_range_includes_its_ends() -> None:
    assert kept(reporting(1, 2, 3, 4), "range", {"min": 2, "max": 3}) == [1, 2]


def test_the_k_best_are_kept_and_what_equals_the_last_of_them() -> None:
    assert kept(reporting(1, 5, 3, 3), "topK", {"k": 1}) == [1]
    assert kept(reporting(1, 5, 3, 3), "topK", {"k": 2}) == [1, 2, 3]
    assert kept(reporting(1, 5, 3, 3), "topK", {"k": 1, "higherIsBetter": False}) == [0]
    assert kept(reporting(1, 5), "topK", {"k": 9}) == [0, 1]


def test_a_percentile_is_the_nearest_rank() -> None:
    values = reporting(10, 40, 20, 30)
    assert kept(values, "percentile", {"percentile": 50}) == [1, 2, 3]
    assert kept(values, "percentile", {"percentile": 50, "higherIsBetter": False}) == [0, 2]
    assert kept(values, "percentile", {"percentile": 0, "higherIsBetter": False}) == [0]
    assert kept(values, "percentile", {"percentile": 100}) == [1]


def test_a_missing_attribute_passes_unless_it_fails() -> None:
    below = {"operator": "LessThan", "value": 2}
    assert kept(reporting(None, 1, 9, NAN), "threshold", below) == [0, 1, 3]
    assert kept(reporting(None, 1, 9), "threshold", below, onMissing="Fail") == [1]
    assert kept(reporting(None, None), "topK", {"k": 1}, onMissing="Fail") == []


def test_when_nothing_would_be_left_everything_is_kept_if_that_is_written() -> None:
    below = {"operator": "LessThan", "value": 0}
    assert kept(reporting(1, 2), "threshold", below) == []
    assert kept(reporting(1, 2), "threshold", below, fallbackOnEmpty=True) == [0, 1]


@pytest.mark.parametrize(
    ("algorithm", "sentence"),
    [
        ({}, "algorithm.type: missing"),
        ({"type": "topK"}, "topK: missing; type topK needs it"),
        ({"type": "topK", "topK": {"k": 0}}, "k is 0; it must be at least 1"),
        ({"type": "percentile", "percentile": {"percentile": 101}}, "percentile is 101.0; it must be from 0 to 100"),
        ({"type": "range", "range": {"min": 2, "max": 1}}, "min must not be above max"),
        ({"type": "range", "range": {"min": 1, "max": 2}, "topK": {"k": 1}}, "topK belongs to type topK, and type"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(algorithm: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        EndpointAttributeFilter(
            msgspec.convert({"attribute": "depth", "algorithm": algorithm}, AttributeFilterParameters)
        )
