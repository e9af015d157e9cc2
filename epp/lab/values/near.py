"""Regular expressions for the misspellings of a key, in the grammar that Go, JavaScript and Python share.

helm checks the schema before any template runs, so the schema itself has to know which key was meant. The expression
of a key matches it with one letter too many, too few, wrong or swapped, cut off at the end, with something appended,
with underscores or dashes between its words, in the other number, or without its first words. It never matches a key
that is right.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

LEAST = 4
"""A shorter key has too many neighbors."""
CUT = 4
"""Letters that may be missing at the end, if at least as many as in ``LEAST`` remain."""


def misspellings(key: str, known: Collection[str]) -> str:
    """Return an expression for misspellings of ``key`` that matches no ``known`` key; empty if none is left."""
    found = [each for each in _neighbors(key) if not any(re.fullmatch(each, other) for other in (key, *known))]
    return f"^({'|'.join(dict.fromkeys(found))})$" if found else ""


def _neighbors(key: str) -> Iterator[str]:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", key)
    for between in ("_", "-", ""):
        yield words.replace(" ", between).lower()
    yield key[0].upper() + key[1:]
    one = key.removesuffix("s")
    yield re.escape(one if one != key else f"{key}s")
    if key.endswith("y"):
        yield re.escape(key[:-1]) + "ies"
    if len(key) < LEAST:
        return
    for at, letter in enumerate(key):
        yield f"{re.escape(key[:at])}([^{re.escape(letter)}]?|{re.escape(letter)}.){re.escape(key[at + 1 :])}"
    for at in range(len(key) - 1):
        if key[at] != key[at + 1]:
            yield re.escape(key[:at] + key[at + 1] + key[at] + key[at + 2 :])
    yield from (re.escape(key[:cut]) for cut in range(max(LEAST, len(key) - CUT), len(key) - 1))
    if re.fullmatch("[a-z]{8,}", key):
        yield key[:LEAST]
    yield re.escape(one) + "[A-Za-z]{2,6}"
    for at in (each.start() for each in re.finditer("[A-Z]", key)):
        if len(key) - at >= 2 * LEAST:
            yield f"[{key[at]}{key[at].lower()}]{re.escape(key[at + 1 :])}"
