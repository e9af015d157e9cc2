"""The schemas of the charts' values: up to date with the keys, closed at every depth, with hints that hide no key."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from epp.lab.values.charts import CHARTS
from epp.lab.values.check import findings
from epp.lab.values.generate import FOLDER as CHARTS_FOLDER
from epp.lab.values.generate import schemas
from epp.lab.values.near import misspellings
from epp.lab.values.nodes import Chart, Section, paths

CHART = CHARTS[0]


def test_the_schemas_are_those_of_the_keys() -> None:
    for path, text in schemas():
        assert path.read_text() == text, f"run `make schemas`: {path.name} of {path.parent.name} is out of date"


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if "properties" in schema and "type" in schema:
            yield schema
        for each in schema.values():
            yield from objects(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from objects(each)


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_a_schema_is_closed_at_every_depth(chart: Chart) -> None:
    [text] = [text for path, text in schemas() if path.parent.name == chart.name]
    found = list(objects(json.loads(text)))
    assert len(found) > sum(isinstance(node, Section) for _, node in paths(chart.root))
    for each in found:
        assert each["additionalProperties"] is False


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_no_hint_stands_in_the_way_of_a_key(chart: Chart) -> None:
    [text] = [text for path, text in schemas() if path.parent.name == chart.name]
    for each in objects(json.loads(text)):
        for expression in each.get("patternProperties", {}):
            assert not [key for key in each["properties"] if re.search(expression, key)]


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("replica", "replicas"),
        ("replicass", "replicas"),
        ("replcias", "replicas"),
        ("replixas", "replicas"),
        ("Replicas", "replicas"),
        ("failuremode", "failureMode"),
        ("failure_mode", "failureMode"),
        ("failure-mode", "failureMode"),
        ("imge", "image"),
        ("monitor", "monitoring"),
        ("gatewayName", "inferenceGatewayName"),
        ("replicasCount", "replicas"),
        ("replicaCount", "replicas"),
        ("tags", "tag"),
        ("repo", "repository"),
        ("networkPolicies", "networkPolicy"),
    ],
)
def test_a_misspelling_is_matched_and_the_key_itself_is_not(word: str, key: str) -> None:
    known = {path[-1] for path, _ in paths(CHART.root)}
    expression = misspellings(key, known)
    assert re.search(expression, word)
    assert not re.search(expression, key)


TREE_OUTSIDE_OF_ROUTER = ("provider", "httpRoute")
"""Sections of the templates' defaults that are at the top level of the values; the others are under ``router``."""


def defaults() -> dict[str, Any]:
    """Return the templates' defaults, as values of the tree ``router``."""
    text = (CHARTS_FOLDER / "tierwise-lib" / "templates" / "_defaults.tpl").read_text()
    found = yaml.safe_load(re.sub(r"\{\{.*?\}\}", "", text, flags=re.DOTALL))
    outside = {key: found.pop(key) for key in TREE_OUTSIDE_OF_ROUTER}
    return {"router": found, **outside}


def test_every_default_of_the_templates_is_a_value_that_can_be_given() -> None:
    assert [str(each) for each in findings(CHART, defaults())] == []


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_the_values_of_a_chart_pass_its_schema(chart: Chart) -> None:
    values = yaml.safe_load((CHARTS_FOLDER / chart.name / "values.yaml").read_text())
    assert [str(each) for each in findings(chart, values)] == []
