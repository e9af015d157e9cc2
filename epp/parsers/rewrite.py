"""Name another model in a request body, and leave every other byte as the client wrote it."""

from __future__ import annotations

import re

import msgspec

from epp.errors import BadRequest
from epp.parsers.structure import pieces, without_escapes

TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
NULL = b"null"
PLAIN, ESCAPED = b'"model"', b"u006"
"""A key that is ``model`` has one of these. (The backslash is left out: texts may be full of them, which slows a
search.)"""
LONGEST_KEY = len(r"\u006d\u006f\u0064\u0065\u006c")
"""Bytes of the longest way to spell ``model``."""
MOST_MODELS = 100
"""Times that a body may name its model."""
BETWEEN = frozenset((b":", b",", b": ", b", "))
"""What mostly stands between two texts, and opens and closes nothing."""


def with_model(body: bytes, model: str, *, named: bool = False) -> bytes:
    """Replace the value of every ``model`` key of the top-level object (of a repeated key, readers use the last), or
    add one. ``named``: it is known to have one that is a text.

    ``body`` must be valid JSON, an object, whose ``model`` is a string, null or absent: the caller has parsed it.
    Raises: BadRequest when it names its model very often, or has too many texts.
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
    """Where the values of the top-level object's ``model`` keys begin and end. Raises: BadRequest."""
    first = body.find(PLAIN)
    again = body.find(PLAIN, first + 1) if first >= 0 else -1
    escaped = ESCAPED in body
    if first < 0 and not escaped:
        return []
    if named and again < 0 and not escaped:  # there is one, and nothing else that it could be
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
            continue  # a value
        if len(found) == MOST_MODELS:
            raise BadRequest(f"the request body names `model` too often: {MOST_MODELS} times at most; name it once")
        rest = after[1:].lstrip()
        value = ended + len(split[index + 2]) - len(rest)
        found.append((value, value + (len(NULL) if rest else len(split[index + 3]) + 2)))
    return found


def with_first_key(body: bytes, value: bytes) -> bytes:
    """``body``, an object without ``model``, with one."""
    at = body.index(b"{") + 1
    rest = body[at:]
    comma = b"" if rest.lstrip().startswith(b"}") else b","
    return b"".join((body[:at], b'"model":', value, comma, rest))


def names_model(bare: bytes, body: bytes, began: int, ended: int) -> bool:
    """Whether the JSON string ``body[began:ended]`` spells ``model``, in plain letters or with escapes."""
    if bare == b"model":
        return True
    if b"\\u" not in bare or len(bare) > LONGEST_KEY:
        return False
    key: str = msgspec.json.decode(body[began:ended], type=str)
    return key == "model"
