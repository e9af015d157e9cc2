"""The differences between two renderings of the same values, object by object and field by field."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.charts.helm import Object

ABSENT = "–"
NAMED = ("name", "containerPort", "port", "mountPath")
"""What an item of a list is found by."""


@dataclass(frozen=True, slots=True, order=True)
class Difference:
    """One field of one object, or a whole object if the path is empty; ``ABSENT`` for what one side lacks."""

    kind: str
    name: str
    path: str
    theirs: str
    ours: str


def differences(theirs: Sequence[Object], ours: Sequence[Object]) -> Iterator[Difference]:
    """Yield the differences; what one side lacks as a whole is one of them."""
    left, right = ({(each["kind"], each["metadata"]["name"]): each for each in side} for side in (theirs, ours))
    for kind, name in sorted({*left, *right}):
        here, there = left.get((kind, name)), right.get((kind, name))
        if here is None or there is None:
            yield Difference(kind, name, "", *(ABSENT if side is None else "present" for side in (here, there)))
            continue
        for path, values in _compared(_canonical(here), _canonical(there), ""):
            yield Difference(kind, name, path, *values)


def _canonical(value: object, key: str = "") -> object:
    """Make maps of what has an order without meaning: rules, named items, and arguments, by their flags."""
    if isinstance(value, dict):
        return {name: _canonical(each, name) for name, each in value.items()}
    if not isinstance(value, list):
        return value
    if key == "rules" and all("verbs" in each for each in value):
        return dict(_rights(value))
    if value and all(isinstance(each, dict) and any(name in each for name in NAMED) for each in value):
        return {f"[{next(str(each[name]) for name in NAMED if name in each)}]": _canonical(each) for each in value}
    if key == "args":
        return {f"[{word.partition('=')[0]}]": word for word in _flags(value)}
    return value


def _rights(rules: Sequence[Object]) -> Iterator[tuple[str, str]]:
    for rule in rules:
        verbs = " ".join(sorted(rule["verbs"]))
        for group in rule.get("apiGroups", [""]):
            for resource in rule.get("resources", rule.get("nonResourceURLs", ())):
                yield f"[{resource}.{group}]" if group else f"[{resource}]", verbs


def _flags(words: Sequence[object]) -> Iterator[str]:
    """Yield arguments, a flag together with its value, whether it stands behind a blank or ``=``."""
    left = [str(word) for word in words]
    while left:
        word = left.pop(0)
        if word.startswith("-") and "=" not in word and left and not left[0].startswith("-"):
            word = f"{word}={left.pop(0)}"
        yield word


def _compared(theirs: object, ours: object, path: str) -> Iterator[tuple[str, tuple[str, str]]]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted({*theirs, *ours}):
            below = f"{path}{key}" if key.startswith("[") or not path else f"{path}.{key}"
            yield from _compared(theirs.get(key), ours.get(key), below)
    elif theirs != ours:
        yield path, (_shown(theirs), _shown(ours))


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return f"map of {', '.join(key.strip('[]') for key in value)}"
    return ABSENT if value is None else value if isinstance(value, str) else json.dumps(value)
