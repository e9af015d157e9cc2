"""Limits how much structure a JSON body may hold, before anything is decoded.

An empty message of 3 bytes becomes an object of 200 bytes, so a body's size alone does not limit what it costs to read.
What counts are the marks outside of texts: a prompt may hold any amount of code. A sample shows whether a body has few
marks even if those in texts are included; only a body with many is scanned completely, without its texts. If a body is
not JSON, the counts hold up to the first error, and the decoder gets no further.
"""

from __future__ import annotations

from random import randbytes

from epp.errors import BadRequest

MOST_OBJECTS, MOST_TEXTS, MOST_VALUES = 50_000, 150_000, 1_100_000
"""Maximum numbers of objects and lists, of texts and keys, and of values (that is, commas). Guess: ten times what
today's longest contexts hold, and more token ids than any model reads.
"""

MOST_ESCAPES = 4_000_000
"""Maximum number of backslashes in a body that must be scanned without its texts."""

SEARCHED_BYTES = 17 << 20
"""A larger body is not scanned without its texts, since that would take longer than to decode it. Guess: more code than
any model reads.
"""

CHECKED_BYTES = 2 * MOST_OBJECTS
"""A smaller body holds too few objects to matter, whatever it consists of."""

SLICE_BYTES = 1 << 16
STEP_BYTES, SAMPLED_BYTES = 4096, 256
"""From each step, this many bytes are sampled, at a place that cannot be predicted."""

OPENING = (b"{", b"[")


def check_structure(body: bytes) -> None:
    """Check the structure of ``body``.

    Raises: BadRequest if it would take many times its size in memory, or long to read.
    """
    if len(body) < CHECKED_BYTES:
        return
    objects, quotes, commas = sampled_marks(body)
    dense = 2 * objects >= MOST_OBJECTS or 2 * quotes >= 2 * MOST_TEXTS
    if not dense and 2 * commas < MOST_VALUES:
        return  # far below all limits, even including marks in texts
    if dense and len(body) > SEARCHED_BYTES:
        raise too_many(f"{SEARCHED_BYTES >> 20} MiB of a body so full of brackets or quotation marks, texts and all,")
    outside = b" ".join(pieces(without_escapes(body))[::2])
    if counted(outside, OPENING, MOST_OBJECTS) > MOST_OBJECTS:
        raise too_many(f"{MOST_OBJECTS:,} objects and lists (opening brackets outside of texts)")
    if counted(outside, (b",",), MOST_VALUES) > MOST_VALUES:
        raise too_many(f"{MOST_VALUES:,} values (commas outside of texts)")


def sampled_marks(body: bytes) -> tuple[int, int, int]:
    """Return about how many opening brackets, quotation marks and commas ``body`` has, including those in texts."""
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
    """Split a body ``without_escapes`` into the parts between its texts and the texts, in turns.

    Raises: BadRequest if there are too many texts.
    """
    if counted(bare, (b'"',), 2 * MOST_TEXTS) > 2 * MOST_TEXTS:
        raise too_many(f"{MOST_TEXTS:,} texts and keys")
    return bare.split(b'"')


def counted(body: bytes, wanted: tuple[bytes, ...], most: int) -> int:
    """Return how often the single bytes ``wanted`` occur in ``body``: exact up to ``most``, a larger number beyond."""
    found = 0
    for at in range(0, len(body), SLICE_BYTES):
        for mark in wanted:
            found += body.count(mark, at, at + SLICE_BYTES)
        if found > most:
            break
    return found


def without_escapes(body: bytes) -> bytes:
    """Return ``body`` with all other bytes in place, but no quotation marks except those that begin and end a text.

    Raises: BadRequest if it has too many backslashes for that.
    """
    if b"\\" not in body:
        return body
    if len(body) > MOST_ESCAPES and counted(body, (b"\\",), MOST_ESCAPES) > MOST_ESCAPES:
        raise too_many(f"{MOST_ESCAPES:,} backslashes beside much structure")
    # In a run of backslashes, each second one is escaped by the one before it. Once these pairs are gone, a backslash
    # before a quotation mark escapes that mark.
    return body.replace(b"\\\\", b"__").replace(b'\\"', b"__")


def too_many(limit: str) -> BadRequest:
    """Return the refusal of a body beyond ``limit``."""
    return BadRequest(f"the request body has too many parts: at most {limit} are read; send less in one request")
