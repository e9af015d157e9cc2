"""Name another model in a request body, and leave every other byte as the client wrote it."""

from __future__ import annotations

import re

import msgspec

# A string, or a bracket. Everything between them (numbers, literals, commas, colons) says nothing about nesting.
TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{}\[\]]', re.DOTALL)
COLON = re.compile(rb"\s*:\s*")
NULL = b"null"
SPELLINGS = (b'"model"', b"\\u006")


def with_model(body: bytes, model: str) -> bytes:
    """Replace the value of every ``model`` key of the top-level object (of a repeated key, readers use the last), or
    add one.

    ``body`` must be valid JSON, an object, whose ``model`` is a string, null or absent: the caller has parsed it.
    """
    value = msgspec.json.encode(model)
    # Where the key may stand again, in plain letters and with escapes; each looked for once between two finds.
    again = [(spelling, 0) for spelling in SPELLINGS]
    out: list[bytes] = []
    copied = depth = 0
    tokens = TOKEN.finditer(body)
    for token in tokens:
        first = body[token.start()]
        if first in b"{[":
            depth += 1
        elif first in b"}]":
            depth -= 1
        elif depth == 1 and (colon := COLON.match(body, token.end())) and names_model(token.group()):
            at = colon.end()
            end = at + len(NULL) if body.startswith(NULL, at) else next(tokens).end()
            out += (body[copied:at], value)
            copied = end
            again = [(spelled, at if at >= copied else body.find(spelled, copied)) for spelled, at in again]
            again = [(spelled, at) for spelled, at in again if at >= 0]
            if not again:
                break
    if not out:
        return with_first_key(body, value)
    return b"".join((*out, body[copied:]))


def with_first_key(body: bytes, value: bytes) -> bytes:
    """``body``, an object without ``model``, with one."""
    at = body.index(b"{") + 1
    rest = body[at:]
    comma = b"" if rest.lstrip().startswith(b"}") else b","
    return b"".join((body[:at], b'"model":', value, comma, rest))


def names_model(key: bytes) -> bool:
    """Whether a JSON string spells ``model``, in plain letters or with escapes."""
    return key == b'"model"' or (b"\\" in key and msgspec.json.decode(key, type=str) == "model")
