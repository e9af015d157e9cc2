"""Readers of a flag's text. Each returns a typed value, or raises ValueError with the values that are allowed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import TypeVar

from epp.units import parse_bytes, parse_duration

E = TypeVar("E", bound=Enum)
T = TypeVar("T")

_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
_ENDPOINT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?):(?P<port>\d{1,5})")

MOST_NAME_BYTES, MOST_PATH_BYTES = 255, 4095
"""The longest file name and path. Source: Linux, ``NAME_MAX`` and ``PATH_MAX`` without its final zero."""
LEAST_BARE_BYTES = 1 << 20
"""From this number on, a size without a unit is accepted as bytes: it cannot be meant in GiB."""
DEBUG_VERBOSITY, INFO_VERBOSITY, ERROR_VERBOSITY = 4, 2, 0


def boolean(text: str) -> bool:
    """Read a boolean as Go's flag package does."""
    if text not in _BOOLEANS:
        raise ValueError("must be true or false")
    return _BOOLEANS[text]


def is_boolean(text: str) -> bool:
    """Return whether ``boolean`` accepts ``text``."""
    return text in _BOOLEANS


def text(value: str) -> str:
    """Return the text as it is."""
    return value


def path(value: str) -> Path | None:
    """Read a path; the empty text is None. Raises: ValueError for a path that no file system can have."""
    longest = max((len(os.fsencode(part)) for part in Path(value).parts), default=0)
    if longest > MOST_NAME_BYTES or len(os.fsencode(value)) > MOST_PATH_BYTES:
        raise ValueError(f"a path has at most {MOST_PATH_BYTES:,} bytes, and each name in it {MOST_NAME_BYTES}")
    return Path(value) if value else None


def integer(low: int, high: int) -> Callable[[str], int]:
    """Return a reader of whole numbers from ``low`` to ``high``."""

    def read(value: str) -> int:
        if not re.fullmatch(r"[+-]?\d{1,18}", value) or not low <= int(value) <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return int(value)

    return read


def port(value: str) -> int:
    """Read a TCP port; 0 requests a free one."""
    if not re.fullmatch(r"\d{1,5}", value) or int(value) > 65535:
        raise ValueError("must be a port from 0 to 65535; 0 takes a free one")
    return int(value)


def share(value: str) -> float:
    """Read a number from 0 to 1."""
    if not re.fullmatch(r"\d*\.?\d+(e-?\d+)?|\d+\.", value) or not 0 <= float(value) <= 1:
        raise ValueError("must be a number from 0 to 1, such as 0.01")
    return float(value)


def number(low: float, high: float, of: str = "") -> Callable[[str], float]:
    """Return a reader of numbers from ``low`` to ``high``; the refusal says what they are a number ``of``."""

    def read(value: str) -> float:
        if not re.fullmatch(r"\d{0,12}\.?\d{1,12}|\d{1,12}\.", value) or not low <= float(value) <= high:
            raise ValueError(f"must be a number{of} from {low:,.12g} to {high:,.12g}")
        return float(value)

    return read


def duration(low_s: float, high_s: float, *, or_zero: bool = False) -> Callable[[str], float]:
    """Return a reader of durations from ``low_s`` to ``high_s``; with ``or_zero`` also of 0, which means off."""

    def read(value: str) -> float:
        seconds = parse_duration(value)
        if not low_s <= seconds <= high_s and not (or_zero and seconds == 0):
            raise ValueError(f"must be {'0, or ' if or_zero else ''}from {_written(low_s)} to {_written(high_s)}")
        return seconds

    return read


def size(low_bytes: int, high_bytes: int) -> Callable[[str], int]:
    """Return a reader of sizes from ``low_bytes`` to ``high_bytes``."""

    def read(value: str) -> int:
        amount = parse_bytes(value)
        if not low_bytes <= amount <= high_bytes:
            raise ValueError(f"must be from {low_bytes:,} to {high_bytes:,} bytes")
        return amount

    return read


def memory(low_bytes: int, high_bytes: int) -> Callable[[str], int]:
    """Return a reader as ``size`` does that refuses small numbers without a unit, which was most likely forgotten."""
    read_size = size(low_bytes, high_bytes)

    def read(value: str) -> int:
        bare = value.strip()
        if re.fullmatch(r"\d+(\.\d+)?", bare, re.ASCII) and 0 < float(bare) < LEAST_BARE_BYTES:
            raise ValueError(f"without a unit it is bytes, and so few are not meant; write it as {bare}GiB or {bare}GB")
        return read_size(value)

    return read


def unless_empty(read: Callable[[str], T]) -> Callable[[str], T | None]:
    """Return a reader as ``read`` that returns None for the empty text, which the Go picker takes for no value."""
    return lambda value: read(value) if value else None


def one_of(choices: type[E]) -> Callable[[str], E]:
    """Return a reader of the values of ``choices``."""

    def read(value: str) -> E:
        try:
            return choices(value)
        except ValueError:
            raise ValueError(f"must be {' or '.join(choice.value for choice in choices)}") from None

    return read


def word(*choices: str) -> Callable[[str], str]:
    """Return a reader of one of ``choices``."""

    def read(value: str) -> str:
        if value not in choices:
            raise ValueError(f"must be {' or '.join(choice for choice in choices if choice)}")
        return value

    return read


def words(value: str) -> tuple[str, ...]:
    """Read a comma-separated list."""
    return tuple(word.strip() for word in value.split(",") if word.strip())


def integers(low: int, high: int) -> Callable[[str], tuple[int, ...]]:
    """Return a reader of one or several whole numbers from ``low`` to ``high``, with commas."""
    one = integer(low, high)

    def read(value: str) -> tuple[int, ...]:
        found = tuple(one(word) for word in words(value))
        if not found:
            raise ValueError(f"must be whole numbers from {low} to {high}, with commas")
        return found

    return read


def header(value: str) -> tuple[str, str]:
    """Read a header, written as ``name: value``."""
    name, colon, content = value.partition(":")
    if not colon or not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name.strip()) or "\n" in content:
        raise ValueError("must be NAME:VALUE, such as x-session-id:7")
    return name.strip().lower(), content.strip()


def endpoints(value: str) -> tuple[str, ...]:
    """Read one ``host:port``, or several with commas; IPv6 in brackets."""
    found = words(value)
    for endpoint in found:
        match = _ENDPOINT.fullmatch(endpoint)
        if match is None or not 1 <= int(match["port"]) <= 65535:
            hint = "; leave out the scheme and the path" if "/" in endpoint else ""
            raise ValueError(f"must be host:port, such as 10.0.0.7:8000 or [fd00::7]:8000{hint}")
    if not found:
        raise ValueError("must be host:port, such as 10.0.0.7:8000 or [fd00::7]:8000")
    return found


def url_path(value: str) -> str:
    """Read the path of a URL as an engine compares it, or ``all``; patterns and queries are refused."""
    if value != "all" and (not value.startswith("/") or "//" in value or set(value) & set("%?#*;\\ ")):
        raise ValueError("must be a path such as /metrics, without a pattern, a query or percent signs; or all")
    return value if value in ("/", "all") else value.rstrip("/")


def log_level(value: str) -> int:
    """Read one of zap's levels, ``debug``, ``info``, ``error`` or a number, as a verbosity."""
    levels = {"debug": DEBUG_VERBOSITY, "info": INFO_VERBOSITY, "error": ERROR_VERBOSITY}
    if value in levels:
        return levels[value]
    if not re.fullmatch(r"[1-9]\d?", value):
        raise ValueError("must be debug, info, error or a verbosity from 1 to 99")
    return int(value)


def _written(seconds: float) -> str:
    return f"{seconds * 1000:g}ms" if seconds < 1 else f"{seconds:g}s"
