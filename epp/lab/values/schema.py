"""The JSON schema of a chart's values, made of the nodes, with hints that helm prints as they are.

helm shows the failures of a schema and nothing of its descriptions, except for constants. So a misspelt key is a
property whose only value would be the sentence with the hint: ``at '/inferenceExtension/imge': value must be 'left out:
did you mean image?'``. No file has that value, so the key is refused with its path.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from epp.lab.values.charts import tree_of
from epp.lab.values.near import misspellings
from epp.lab.values.nodes import Chart, Either, Free, Leaf, Listing, Node, Section, paths

DRAFT = "http://json-schema.org/draft-07/schema#"
MOST_PLACES = 2
"""A key with more places, such as ``name`` or ``enabled``, is not taken for misplaced."""
PICKER_SECTIONS = (("inferenceExtension",), ("router", "epp"))
"""Where a key of many places, such as ``image``, is meant to be if it is at the top: what it is of is the picker."""
DEEPEST = 3
"""Sections below this depth have hints on misspellings only: helm keeps the schema in each release, below 1 MB."""


def schema_of(chart: Chart) -> dict[str, Any]:
    """Return the schema of ``chart``, as JSON."""
    places: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for path, _ in paths(chart.root):
        places[path[-1]].append(path)
    schema = _section(chart.root, (), places)
    schema["type"] = "object"
    rules = [_clash(key, others) for group, others in chart.clashes for key in group]
    return {"$schema": DRAFT, "title": f"Values of the chart {chart.name}", **schema} | (
        {"allOf": rules} if rules else {}
    )


def _clash(key: str, others: tuple[str, ...]) -> dict[str, Any]:
    hint = f"left out: {key} is set as well, and two trees of values do not mix; tierwise values makes one of the other"
    return {
        "if": {"required": [key], "properties": {key: {"type": "object", "minProperties": 1}}},
        "then": {"properties": {other: {"const": hint} for other in others}},
    }


def _schema(node: Node, path: tuple[str, ...], places: Mapping[str, list[tuple[str, ...]]]) -> dict[str, Any]:
    match node:
        case Leaf():
            return _leaf(node)
        case Section():
            return _section(node, path, places)
        case Listing():
            unique = {"uniqueItems": True} if node.unique else {}
            return {"type": ["array", "null"], "items": _schema(node.item, (*path, "[]"), places), **unique}
        case Free():
            inner = {"additionalProperties": _schema(node.value, path, places)} if node.value else {}
            return {"type": ["object", "null"], **inner}
        case Either():
            return {"anyOf": [_schema(kind, path, places) for kind in node.kinds]}


def _leaf(leaf: Leaf) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": [*leaf.types, "null"]}
    if leaf.choices:
        schema["enum"] = [*leaf.choices, *((leaf.refusal,) if leaf.refusal else ()), None]
    if leaf.pattern:
        schema["pattern"] = f"^({leaf.pattern})$"
    if leaf.minimum is not None:
        schema["minimum"] = leaf.minimum
    if leaf.maximum is not None:
        schema["maximum"] = leaf.maximum
    return schema


def _section(section: Section, path: tuple[str, ...], places: Mapping[str, list[tuple[str, ...]]]) -> dict[str, Any]:
    known = section.keys
    schema: dict[str, Any] = {
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": {key: _schema(node, (*path, key), places) for key, node in known.items()},
    }
    if section.required:
        schema["required"] = list(section.required)
    elsewhere = _misplaced(section, path, places)
    hints = {
        expression: {"const": f"left out: did you mean {key}?"}
        for key in known
        if (expression := misspellings(key, {*known, *(name for names in elsewhere.values() for name in names)}))
    }
    for where, names in elsewhere.items():
        hints[f"^({'|'.join(sorted(names))})$"] = {"const": f"left out: it belongs under {where}"}
    if hints:
        schema["patternProperties"] = hints
    return schema


def _misplaced(
    section: Section, path: tuple[str, ...], places: Mapping[str, list[tuple[str, ...]]]
) -> dict[str, list[str]]:
    """Return the keys that belong elsewhere, by where they belong."""
    by_place: dict[str, list[str]] = defaultdict(list)
    if len(path) > DEEPEST or "[]" in path:
        return by_place
    for key, everywhere in places.items():
        found = [place for place in everywhere if not path or tree_of(place) in (tree_of(path), None)]
        if len(found) > MOST_PLACES and len(path) <= 1:
            found = [place for place in found if place[:-1] in PICKER_SECTIONS]
        if key not in section.keys and 0 < len(found) <= MOST_PLACES:
            by_place[" or ".join(".".join(each[:-1]) or "the top level" for each in found)].append(key)
    return by_place
