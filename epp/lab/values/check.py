"""What is wrong with values: each key that no chart has, with the nearest one, and each value of another type."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum

from epp.lab.values.charts import tree_of
from epp.lab.values.nodes import Chart, Either, Free, Leaf, Listing, Node, Section, paths

CLOSE = 0.7
"""How much a key has to resemble another, of 1, to be taken for a misspelling of it (guess)."""
SHORTEST = 3
"""The fewest letters that may stand for the key that begins with them (guess)."""
_TYPES: tuple[tuple[type, str, str], ...] = (
    (bool, "boolean", "true or false, without quotes"),
    (int, "integer", "a whole number, without quotes"),
    (float, "number", "a number, without quotes"),
    (str, "string", "text"),
    (list, "array", "a list"),
    (dict, "object", "a map"),
)


class Fault(Enum):
    """Whether upstream's chart would have ignored what was found."""

    UNKNOWN = "unknown"
    """No chart reads the key, and upstream's charts say nothing about it."""
    WRONG = "wrong"
    """The key is known, and the value cannot be used."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, by its path such as ``router.epp.flags``."""

    path: str
    message: str
    fault: Fault

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def findings(chart: Chart, values: Mapping[str, object]) -> Iterator[Finding]:
    """Yield all that ``chart`` refuses about ``values``, in the order of the text."""
    for group, others in chart.clashes:
        mine = [key for key in group if values.get(key)]
        for other in (key for key in others if values.get(key)):
            if mine:
                yield Finding(
                    other,
                    f"{mine[0]} is set as well, and the two trees of values do not mix; take one out of the file",
                    Fault.WRONG,
                )
    yield from _Walk(chart).of(chart.root, dict(values), ())


class _Walk:
    def __init__(self, chart: Chart) -> None:
        self._places: dict[str, list[tuple[str, ...]]] = {}
        for path, _ in paths(chart.root):
            self._places.setdefault(path[-1], []).append(path)

    def of(self, node: Node, value: object, path: tuple[str, ...]) -> Iterator[Finding]:
        if value is None:
            return
        match node:
            case Section() if isinstance(value, dict):
                yield from self._section(node, value, path)
            case Free(value=inner) if isinstance(value, dict):
                for key, each in value.items():
                    if inner is not None:
                        yield from self.of(inner, each, (*path, str(key)))
            case Listing() if isinstance(value, list):
                if node.unique and (twice := [each for at, each in enumerate(value) if each in value[:at]]):
                    yield Finding(".".join(path), f"{twice[0]} is there twice; leave one out", Fault.WRONG)
                for at, each in enumerate(value):
                    yield from self.of(node.item, each, (*path[:-1], f"{path[-1]}[{at}]"))
            case Leaf():
                if message := _leaf(node, value):
                    yield Finding(".".join(path), message, Fault.WRONG)
            case Either():
                tried = [list(self.of(kind, value, path)) for kind in node.kinds]
                if all(tried):
                    yield tried[0][0]
            case _:
                yield Finding(".".join(path), _mismatch(value, _wanted(node)), Fault.WRONG)

    def _section(self, section: Section, value: dict[object, object], path: tuple[str, ...]) -> Iterator[Finding]:
        for key, each in value.items():
            if isinstance(key, str) and key in section.keys:
                yield from self.of(section.keys[key], each, (*path, key))
            else:
                hint = self._hint(section, str(key), path)
                yield Finding(".".join((*path, str(key))), f"there is no such key; {hint}", Fault.UNKNOWN)
        for key in section.required:
            if value.get(key) is None:
                yield Finding(".".join((*path, key)), "it is missing", Fault.WRONG)

    def _hint(self, section: Section, key: str, path: tuple[str, ...]) -> str:
        elsewhere = self._places.get(key, [])
        same = [place for place in elsewhere if tree_of(place) in (tree_of(path), None)]
        if places := [".".join(place) for place in (same if path else elsewhere)]:
            return f"its place is {' or '.join(places[:3])}"
        by_lower = {known.lower(): known for known in section.keys}
        if near := get_close_matches(key.lower(), by_lower, n=1, cutoff=CLOSE):
            return f"did you mean {'.'.join((*path, by_lower[near[0]]))}?"
        begun = [known for known in section.keys if len(key) >= SHORTEST and known.lower().startswith(key.lower())]
        if len(begun) == 1:
            return f"did you mean {'.'.join((*path, begun[0]))}?"
        inside = [known for known in section.keys if known.lower().endswith(key.lower())]
        if len(inside) == 1:
            return f"did you mean {'.'.join((*path, inside[0]))}?"
        far = {name.lower(): place for name, (place, *more) in self._places.items() if not more}
        if near := get_close_matches(key.lower(), far, n=1, cutoff=CLOSE):
            return f"did you mean {'.'.join(far[near[0]])}?"
        return f"here are {', '.join(section.keys)}"


def _leaf(leaf: Leaf, value: object) -> str:
    """Return what is wrong with ``value``; empty if nothing is."""
    if leaf.choices and not isinstance(value, (dict, list)) and value in leaf.choices:
        return "" if isinstance(value, bool) == isinstance(leaf.choices[0], bool) else _mismatch(value, _wanted(leaf))
    if not _is_one_of(leaf.types, value):
        return _mismatch(value, _wanted(leaf))
    if leaf.choices:
        near = get_close_matches(str(value), [str(each) for each in leaf.choices], n=1)
        allowed = f"did you mean {near[0]}?" if near else f"it is one of {', '.join(map(str, leaf.choices))}"
        return f"{value!r}: {leaf.refusal or allowed}"
    if leaf.pattern and isinstance(value, str) and not re.fullmatch(leaf.pattern, value):
        return f"{value!r} is not written like {leaf.example}"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if leaf.minimum is not None and value < leaf.minimum:
            return f"{value} is below {leaf.minimum:g}"
        if leaf.maximum is not None and value > leaf.maximum:
            return f"{value} is above {leaf.maximum:g}"
    return ""


def _is_one_of(types: tuple[str, ...], value: object) -> bool:
    name = next((name for kind, name, _ in _TYPES if isinstance(value, kind)), "null")
    return name in types or (name == "integer" and "number" in types)


def _wanted(node: Node) -> tuple[str, ...]:
    match node:
        case Leaf():
            return node.types
        case Listing():
            return ("array",)
        case Either():
            return tuple(name for kind in node.kinds for name in _wanted(kind))
        case _:
            return ("object",)


def _mismatch(value: object, wanted: tuple[str, ...]) -> str:
    words = " or ".join(phrase for _, name, phrase in _TYPES if name in wanted)
    what = next(phrase for kind, _, phrase in _TYPES if isinstance(value, kind)).partition(",")[0]
    if isinstance(value, str):
        return f"{value!r} is text, and has to be {words}"
    shown = "" if isinstance(value, (dict, list)) else f"{str(value).lower() if isinstance(value, bool) else value}: "
    return f"{shown}it is {what}, and has to be {words}"
