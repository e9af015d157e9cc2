"""How much structure a JSON body holds, told before anything is decoded.

An empty message of 3 bytes becomes an object of 200, so that a body's size says little about what it costs to read.
Counted are marks outside of texts: a prompt may hold any amount of code. That a body has few marks, texts and all, is
told by a sample; only one with many is looked at as a whole, without its texts. Where a body is not JSON the counts
hold up to the first error, and so does whoever decodes it.
"""

from __future__ import annotations

from random import randbytes

from epp.errors import BadRequest

MOST_OBJECTS, MOST_TEXTS, MOST_VALUES = 50_000, 150_000, 1_100_000
"""Objects and lists; texts and keys; values, that is, commas. Guess: ten times what today's longest contexts hold, and
more token ids than any model reads."""

MOST_ESCAPES = 4_000_000
"""Backslashes of a body that is to be looked at without its texts."""

SEARCHED_BYTES = 17 << 20
"""A larger body is not looked at without its texts: it would take longer than to decode it. Guess: more code than any
model reads."""

CHECKED_BYTES = 2 * MOST_OBJECTS
"""A body of fewer holds too few objects to matter, whatever it is made of."""

SLICE_BYTES = 1 << 16
STEP_BYTES, SAMPLED_BYTES = 4096, 256
"""Of each step, so many bytes at a place that nobody can know beforehand."""

OPENING = (b"{", b"[")


def check_structure(body: bytes) -> None:
    """Raises: BadRequest when ``body`` would take many times its size to hold, or long to read."""
    if len(body) < CHECKED_BYTES:
        return
    objects, quotes, commas = sampled_marks(body)
    dense = 2 * objects >= MOST_OBJECTS or 2 * quotes >= 2 * MOST_TEXTS
    if not dense and 2 * commas < MOST_VALUES:
        return  # far below all limits, texts and all
    if dense and len(body) > SEARCHED_BYTES:
        raise too_many(f"{SEARCHED_BYTES >> 20} MiB of a body so full of brackets or quotation marks, texts and all,")
    outside = b" ".join(pieces(without_escapes(body))[::2])
    if counted(outside, OPENING, MOST_OBJECTS) > MOST_OBJECTS:
        raise too_many(f"{MOST_OBJECTS:,} objects and lists (opening brackets outside of texts)")
    if counted(outside, (b",",), MOST_VALUES) > MOST_VALUES:
        raise too_many(f"{MOST_VALUES:,} values (commas outside of texts)")


def sampled_marks(body: bytes) -> tuple[int, int, int]:
    """About how many opening brackets, quotation marks and commas ``body`` has, those in texts too."""
    steps = range(0, len(body), STEP_BYTES)
    sample = b"".join(
        [body[at + 16 * r : at + 16 * r + SAMPLED_BYTES] for at, r in zip(steps, randbytes(len(steps)), strict=True)]
    )
    stands_for = STEP_BYTES // SAMPLED_BYTES
    return (
        stands_for * (sample.count(b"{") + sample.count(b"[")),
        stands_for * sample.count(b'"'),
        stands_for * sample.count(b","),
    )


def pieces(bare: bytes) -> list[bytes]:
    """In turns what stands between the texts of a body ``without_escapes``, and what they say.

    Raises: BadRequest when there are too many texts.
    """
    if counted(bare, (b'"',), 2 * MOST_TEXTS) > 2 * MOST_TEXTS:
        raise too_many(f"{MOST_TEXTS:,} texts and keys")
    return bare.split(b'"')


def counted(body: bytes, wanted: tuple[bytes, ...], most: int) -> int:
    """How often any of ``wanted``, single bytes, stands in ``body``: exact up to ``most``, more than that beyond."""
    found = 0
    for at in range(0, len(body), SLICE_BYTES):
        for mark in wanted:
            found += body.count(mark, at, at + SLICE_BYTES)
        if found > most:
            break
    return found


def without_escapes(body: bytes) -> bytes:
    """``body``, each byte in its place, but its only quotation marks are those that begin and end a text.

    Raises: BadRequest when it has too many backslashes for that.
    """
    if b"\\" not in body:
        return body
    if len(body) > MOST_ESCAPES and counted(body, (b"\\",), MOST_ESCAPES) > MOST_ESCAPES:
        raise too_many(f"{MOST_ESCAPES:,} backslashes beside much structure")
    # In a run of backslashes each second one is what the one before it names; after these, only others name quotes.
    return body.replace(b"\\\\", b"__").replace(b'\\"', b"__")


def too_many(limit: str) -> BadRequest:
    """The refusal of a body beyond ``limit``."""
    return BadRequest(f"the request body has too many parts: at most {limit} are read; send less in one request")
