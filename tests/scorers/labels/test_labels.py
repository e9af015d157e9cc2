"""Filters by label (selectors, the deprecated form, roles), and the scorer by a header's label."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scorers.base import Candidate, Filter, Request, Slot
from scorers.labels.deprecated import ByLabelFilter, ByLabelParameters
from scorers.labels.header_label import HeaderLabelAffinityScorer, HeaderLabelParameters
from scorers.labels.roles import LABEL, DecodeFilter, EncodeFilter, PrefillFilter
from scorers.labels.selector import LabelSelectorFilter, LabelSelectorParameters

REQUEST = Request(id="r", model="m", target_model="m", headers={"x-zone": "a"})


def with_labels(*each: dict[str, str]) -> list[Candidate]:
    return [Candidate(slot=Slot(i), address=f"10.0.0.{i}:8000", labels=labels) for i, labels in enumerate(each)]


POOL = with_labels({"gpu": "h100", "zone": "a"}, {"gpu": "h200", "zone": "b"}, {"gpu": "h100"}, {})


def kept(narrower: Filter[Any], candidates: list[Candidate] = POOL) -> list[int]:
    return [c.slot for c in narrower.keep(REQUEST, candidates)]


def selector(**written: Any) -> LabelSelectorFilter:
    return LabelSelectorFilter(msgspec.convert(written, LabelSelectorParameters))


def test_every_label_must_match() -> None:
    assert kept(selector(matchLabels={"gpu": "h100"})) == [0, 2]
    assert kept(selector(matchLabels={"gpu": "h100", "zone": "a"})) == [0]
    assert kept(selector()) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("expression", "slots"),
    [
        ({"key": "zone", "operator": "In", "values": ["a", "c"]}, [0]),
        ({"key": "zone", "operator": "NotIn", "values": ["a"]}, [1, 2, 3]),
        ({"key": "zone", "operator": "Exists"}, [0, 1]),
        ({"key": "zone", "operator": "DoesNotExist"}, [2, 3]),
    ],
)
def test_expressions_mean_what_they_mean_in_kubernetes(expression: dict[str, Any], slots: list[int]) -> None:
    assert kept(selector(matchExpressions=[expression])) == slots


def test_labels_and_expressions_are_met_together() -> None:
    exists = {"key": "zone", "operator": "Exists"}
    assert kept(selector(matchLabels={"gpu": "h100"}, matchExpressions=[exists])) == [0]


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        ({"key": "zone", "operator": "In"}, "values: In needs at least one"),
        ({"key": "zone", "operator": "Exists", "values": ["a"]}, "values: Exists takes none"),
        ({"key": "", "operator": "Exists"}, "key: missing"),
    ],
)
def test_an_expression_that_cannot_be_met_is_refused(expression: dict[str, Any], sentence: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=sentence):
        selector(matchExpressions=[expression])


def test_by_label_keeps_the_valid_values_and_no_label_where_allowed() -> None:
    assert kept(ByLabelFilter(ByLabelParameters("zone", ("a",)))) == [0]
    assert kept(ByLabelFilter(ByLabelParameters("zone", ("a",), allows_no_label=True))) == [0, 2, 3]
    assert kept(ByLabelFilter(ByLabelParameters("zone", allows_no_label=True))) == [2, 3]
    with pytest.raises(ValueError, match="label: missing"):
        ByLabelFilter(ByLabelParameters())
    with pytest.raises(ValueError, match="validValues: missing"):
        ByLabelFilter(ByLabelParameters("zone"))


ROLES = ["encode", "prefill", "decode", "encode-prefill", "prefill-decode", "encode-prefill-decode", "both", "other"]


@pytest.mark.parametrize(
    ("narrower", "roles"),
    [
        (EncodeFilter(), {"encode", "encode-prefill", "encode-prefill-decode"}),
        (PrefillFilter(), {"prefill", "encode-prefill", "prefill-decode", "encode-prefill-decode", "both"}),
        (DecodeFilter(), {"decode", "prefill-decode", "encode-prefill-decode", "both", None}),
    ],
)
def test_a_role_filter_keeps_the_endpoints_that_have_the_role(narrower: Filter[Any], roles: set[str | None]) -> None:
    pool = with_labels(*({LABEL: role} for role in ROLES), {})
    assert {c.labels.get(LABEL) for c in narrower.keep(REQUEST, pool)} == roles


def test_the_header_names_the_preferred_label() -> None:
    scorer = HeaderLabelAffinityScorer(HeaderLabelParameters("X-Zone", "zone"))
    assert scorer.score(REQUEST, POOL) == [1.0, 0.0, 0.0, 0.0]
    assert scorer.score(Request(id="r", model="m", target_model="m"), POOL) == [0.0] * 4
    with pytest.raises(ValueError, match="labelKey: missing"):
        HeaderLabelAffinityScorer(HeaderLabelParameters("x-zone"))
