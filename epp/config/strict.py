"""Converts plain data to typed structs; every error begins with the path of its key."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import TypeVar

import msgspec
from msgspec import inspect

from epp.errors import ConfigError
from epp.units import Duration, Quantity

T = TypeVar("T")

_KEY = re.compile(r"[a-z][A-Za-z]*(\.[a-z][A-Za-z]*)*: ")
_WHERE = re.compile(r" - at `\$(?P<path>[^`]*)`$")


def convert(data: object, kind: type[T], path: str = "") -> T:
    """Return ``data`` as a ``kind``; a key whose value is null counts as absent.

    Raises: ConfigError, beginning with the key path under ``path``, for unknown fields and invalid values.
    """
    cleaned = _known(data, inspect.type_info(kind), path)
    try:
        return msgspec.convert(cleaned, kind, dec_hook=_units)
    except msgspec.ValidationError as error:
        raise ConfigError(_located(str(error), path)) from error


def nearest(word: str, known: Iterable[str], none: str = "; it takes none") -> str:
    """Return ``; did you mean X?`` for a likely misspelling, else ``; known: ...``, or ``none`` without known words."""
    names = sorted(known)
    guess = near(word, names)
    if guess:
        return f"; did you mean {guess}?"
    return f"; known: {', '.join(names)}" if names else none


def near(word: str, known: Iterable[str]) -> str | None:
    """Return the word of ``known`` that was probably meant; None if none resembles ``word``."""
    folded = {name.lower(): name for name in sorted(known)}
    low = word.lower()
    close = get_close_matches(low, folded, n=1, cutoff=0.6) or [name for name in folded if len(low) > 2 and low in name]
    return folded[close[0]] if close else None


def _known(data: object, kind: inspect.Type, path: str) -> object:
    """Return ``data`` without nulls in its structs. Raises: ConfigError for a key that its struct does not have."""
    if isinstance(kind, inspect.UnionType):
        structured = [
            t for t in kind.types if isinstance(t, inspect.StructType | inspect.VarTupleType | inspect.EnumType)
        ]
        return _known(data, structured[0], path) if structured else data
    if isinstance(kind, inspect.EnumType) and data is not None:
        choices = [str(member.value) for member in kind.cls]
        if data not in choices:
            raise ConfigError(f"{path}: {data!r} is none of {', '.join(choices)}")
    if isinstance(kind, inspect.VarTupleType) and isinstance(data, list):
        return [_known(item, kind.item_type, f"{path}[{i}]") for i, item in enumerate(data)]
    if isinstance(kind, inspect.StructType) and isinstance(data, dict):
        fields = {field.encode_name: field.type for field in kind.fields}
        for key in data:
            if key not in fields:
                raise ConfigError(f"{_join(path, key)}: unknown field{nearest(str(key), fields)}")
        return {k: _known(v, fields[k], _join(path, k)) for k, v in data.items() if v is not None}
    return data


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _units(kind: type, value: object) -> object:
    if issubclass(kind, Duration | Quantity):
        return kind.parse(value)
    raise NotImplementedError(kind)


def _located(message: str, path: str) -> str:
    match = _WHERE.search(message)
    inner = match["path"].removeprefix(".") if match else ""
    where = f"{path}.{inner}" if path and inner and not inner.startswith("[") else path + inner
    text = (message[: match.start()] if match else message).replace("`", "")
    text = re.sub(r"^Object missing required field (\S+)", r"missing field \1", text)
    return located(where, text) if where else f"top level: {text[:1].lower()}{text[1:]}"


def located(where: str, text: str) -> str:
    """Put the key path ``where`` in front of ``text``; a key at the start of ``text`` becomes part of the path."""
    if _KEY.match(text):
        return f"{where}.{text}"
    return f"{where}: {text[:1].lower()}{text[1:]}"
