"""Replaces the model in a request body, and leaves every other byte as the client wrote it."""

from __future__ import annotations

import re

import msgspec

from epp.errors import BadRequest
from epp.parsers.structure import pieces, without_escapes

TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
NULL = b"null"
PLAIN, ESCAPED = b'"model"', b"u006"
"""Any key that spells ``model`` contains one of these. (The backslash of the escape is left out: texts may be full of
backslashes, which slows a search.)
"""
LONGEST_KEY = len(r"\u006d\u006f\u0064\u0065\u006c")
"""The length of the longest way to spell ``model``, in bytes."""
MOST_MODELS = 100
"""Maximum number of times that a body may name its model."""
BETWEEN = frozenset((b":", b",", b": ", b", "))
"""What stands most often between two texts; none of it opens or closes anything."""


def with_model(body: bytes, model: str, *, named: bool = False) -> bytes:
    """Return ``body`` with the value of every top-level ``model`` key replaced, or with such a key added.

    Every key is replaced, because readers use the last of repeated keys. ``named``: the body is known to have a
    ``model`` that is a string.

    ``body`` must be valid JSON, an object, whose ``model`` is a string, null or absent: the caller has parsed it.
    Raises: BadRequest if it names its model very often, or has too many texts.
    """
    value = msgspec.json.encode(model)
    out: list[bytes] = []
    copied = 0
    for at, end in values_of_model(body, named=named):
        out += (body[copied:at], value)
        copied = end
    if not out:
        return with_first_key(body, value)
    return b"".join((*out, body[copied:]))


def values_of_model(body: bytes, *, named: bool) -> list[tuple[int, int]]:
    """Return the begin and end of each value of a top-level ``model`` key. Raises: BadRequest."""
    first = body.find(PLAIN)
    again = body.find(PLAIN, first + 1) if first >= 0 else -1
    escaped = ESCAPED in body
    if first < 0 and not escaped:
        return []
    if named and again < 0 and not escaped:  # the only occurrence must be the key
        colon = body.index(b":", first)
        began = body.index(b'"', colon)
        text_there = TEXT.match(body, began)
        return [(began, text_there.end())] if text_there else []
    found: list[tuple[int, int]] = []
    split = pieces(without_escapes(body))
    ended = depth = 0
    for index in range(0, len(split) - 1, 2):
        between, text = split[index : index + 2]
        if between not in BETWEEN:
            depth += between.count(b"{") + between.count(b"[") - between.count(b"}") - between.count(b"]")
        began = ended + len(between)
        ended = began + len(text) + 2
        if depth != 1 or not names_model(text, body, began, ended):
            continue
        after = split[index + 2].lstrip()
        if not after.startswith(b":"):
            continue  # it is a value, not a key
        if len(found) == MOST_MODELS:
            raise BadRequest(f"the request body names `model` too often: {MOST_MODELS} times at most; name it once")
        rest = after[1:].lstrip()
        value = ended + len(split[index + 2]) - len(rest)
        found.append((value, value + (len(NULL) if rest else len(split[index + 3]) + 2)))
    return found


def with_first_key(body: bytes, value: bytes) -> bytes:
    """Return ``body``, an object without ``model``, with that key added in front."""
    at = body.index(b"{") + 1
    rest = body[at:]
    comma = b"" if rest.lstrip().startswith(b"}") else b","
    return b"".join((body[:at], b'"model":', value, comma, rest))


def names_model(bare: bytes, body: bytes, began: int, ended: int) -> bool:
    """Return whether the JSON string ``body[began:ended]`` spells ``model``, in plain letters or with escapes."""
    if bare == b"model":
        return True
    if b"\\u" not in bare or len(bare) > LONGEST_KEY:
        return False
    key: str = msgspec.json.decode(body[began:ended], type=str)
    return key == "model"
