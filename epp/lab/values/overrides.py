"""Values of several files and of ``--set``, put together as helm does it.

Maps are merged key by key; a list or a single value replaces what was there. The grammar of ``--set`` is helm's:
``a.b=1,c[0].d={x,y}``, with a backslash before a dot, comma, brace or equals sign that stands for itself.
Source: helm's documentation, "The format and limitations of --set".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import cast

from epp.errors import ConfigError

_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_STEP = re.compile(r"((?:\\.|[^.\\\[\]])*)((?:\[[0-9]+\])*)")
MOST_ITEMS = 65536
"""The longest list that an index may make; helm's own limit."""


def merged(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    """Return ``below`` with everything that ``above`` sets."""
    result = dict(below)
    for key, value in above.items():
        there = result.get(key)
        if isinstance(value, dict) and isinstance(there, dict):
            result[key] = merged(there, value)
        else:
            result[key] = value
    return result


def with_set(values: Mapping[str, object], text: str, *, typed: bool) -> dict[str, object]:
    """Return ``values`` with what ``--set text`` sets, or ``--set-string`` if not ``typed``.

    Raises: ConfigError naming the assignment that cannot be read.
    """
    result: object = values
    for assignment in _split(text, ","):
        name, equals, value = _cut(assignment)
        if not equals or not name:
            raise ConfigError(f"--set {text}: {assignment!r} is no assignment, such as provider.name=gke")
        steps = list(_steps(name, text))
        result = _placed(result, steps, _read(value, typed=typed), text)
    return cast("dict[str, object]", result)


def _placed(there: object, steps: list[str | int], value: object, text: str) -> object:
    """Return ``there`` with ``value`` at the end of ``steps``."""
    if not steps:
        return value
    step, *more = steps
    if isinstance(step, int):
        items = list(there) if isinstance(there, list) else []
        items += [None] * (step + 1 - len(items))
        items[step] = _placed(items[step], more, value, text)
        return items
    if there is not None and not isinstance(there, dict):
        raise ConfigError(f"--set {text}: {step!r} is set below {there!r}, which is no map")
    section = dict(there or {})
    section[step] = _placed(section.get(step), more, value, text)
    return section


def _steps(name: str, text: str) -> Iterator[str | int]:
    at = 0
    while at < len(name):
        found = _STEP.match(name, at)
        if found is None or found.end() == at or not found[1]:
            raise ConfigError(f"--set {text}: {name!r} is no path, such as inferenceExtension.env[0].name")
        yield _plain(found[1])
        for index in re.findall(r"[0-9]+", found[2]):
            if int(index) >= MOST_ITEMS:
                raise ConfigError(f"--set {text}: the index {index} is above {MOST_ITEMS - 1}")
            yield int(index)
        at = found.end()
        if at < len(name):
            if name[at] != ".":
                raise ConfigError(f"--set {text}: {name!r} has no dot behind the bracket")
            at += 1


def _split(text: str, mark: str) -> Iterator[str]:
    """Yield the parts of ``text`` between marks that are in no braces and behind no backslash."""
    part, depth, escaped = "", 0, False
    for letter in text:
        if letter == mark and depth == 0 and not escaped:
            yield part
            part = ""
            continue
        part += letter
        depth += 0 if escaped else {"{": 1, "}": -1}.get(letter, 0)
        escaped = letter == "\\" and not escaped
    if part:
        yield part


def _cut(assignment: str) -> tuple[str, str, str]:
    found = re.match(r"((?:\\.|[^=\\])*)(=?)(.*)", assignment, re.DOTALL)
    return (found[1], found[2], found[3]) if found else (assignment, "", "")


def _read(value: str, *, typed: bool) -> object:
    if value.startswith("{") and value.endswith("}"):
        return [_read(each, typed=typed) for each in _split(value[1:-1], ",")] or [""]  # as helm reads braces alone
    word = _plain(value)
    if not typed or word != value:
        return word
    if _WHOLE.fullmatch(word):
        return int(word)
    return {"true": True, "false": False, "null": None}.get(word, word)


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)
