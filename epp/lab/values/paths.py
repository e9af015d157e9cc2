"""Values by their dotted path, such as ``router.epp.image.tag``."""

from __future__ import annotations

from collections.abc import Mapping


def get(values: Mapping[str, object], path: str) -> object:
    """Return what is at ``path``; None if nothing is."""
    here: object = values
    for key in path.split("."):
        if not isinstance(here, Mapping):
            return None
        here = here.get(key)
    return here


def put(values: dict[str, object], path: str, value: object) -> None:
    """Set ``value`` at ``path``, and make the sections above it; two maps are merged."""
    *sections, last = path.split(".")
    here = values
    for key in sections:
        inner = here.get(key)
        if not isinstance(inner, dict):
            inner = here[key] = {}
        here = inner
    there = here.get(last)
    here[last] = {**there, **value} if isinstance(there, dict) and isinstance(value, dict) else value


def drop(values: dict[str, object], path: str) -> None:
    """Remove what is at ``path``, and the sections above it that are empty then."""
    head, _, rest = path.partition(".")
    inner = values.get(head)
    if rest and isinstance(inner, dict):
        drop(inner, rest)
        if inner:
            return
    values.pop(head, None)
