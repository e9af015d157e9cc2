"""Checks of what plugins return beside scores: a plugin may be third-party code, and its mistakes stay its own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import isfinite

import msgspec

from scorers.base import Detail

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
"""A token, as HTTP defines it, in lower case."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def checked_details(details: Sequence[Detail], wanted: int) -> Sequence[Detail]:
    """Return ``details`` without infinite numbers and NaN; empty if there are none.

    Raises: ValueError if their number is not ``wanted``; ValueError or TypeError for a value that is not a ``Detail``.
    """
    if not details:
        return ()
    if len(details) != wanted:
        raise ValueError(f"{len(details)} details for {wanted} candidates")
    found = [msgspec.convert(msgspec.to_builtins(detail), Detail) for detail in details]
    return [Detail(one.text, {name: value for name, value in one.numbers.items() if isfinite(value)}) for one in found]


def checked_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return ``headers``, which are valid. Raises: ValueError, TypeError for an invalid name or value."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a header; a token in lower case is")
        if _CONTROL.search(value):
            raise ValueError(f"the header {name}: a value has no control characters")
        value.encode()  # UnicodeEncodeError, a ValueError, for half of a surrogate pair
    return headers
