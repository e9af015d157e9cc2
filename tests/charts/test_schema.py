"""The schemas of the charts' values: up to date with the keys, closed at every depth, with hints that hide no key."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from epp.lab.values.charts import CHARTS
from epp.lab.values.generate import schemas
from epp.lab.values.near import misspellings
from epp.lab.values.nodes import Chart, paths

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
    assert len(found) > 30
    for each in found:
        assert each["additionalProperties"] is False or "then" in each


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
    ],
)
def test_a_misspelling_is_matched_and_the_key_itself_is_not(word: str, key: str) -> None:
    known = {path[-1] for path, _ in paths(CHART.root)}
    expression = misspellings(key, known)
    assert re.search(expression, word)
    assert not re.search(expression, key)
