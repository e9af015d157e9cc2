"""A stretch of blocks in which no known prompt ends or branches off, with its tokens and who has how much of it."""

from __future__ import annotations

import msgspec

BYTES_PER_TOKEN = 4


class Run(msgspec.Struct, gc=False, eq=False):
    """Invariant: ``parent.children[data[:block]] is self``, unless it is a root or nobody holds anything of it any
    more. (A run that is gone is kept while places name it: what lay before it may have been split off.)"""

    number: int
    parent: Run | None
    start: int
    """The depth of its first block."""
    data: bytes
    """Its tokens, as ``scorers.base.Prompt.data`` has them."""
    blocks: int
    block_tokens: int
    identity: bytes = b""
    """Of a root."""
    children: dict[bytes, Run] | None = None
    have: dict[int, int] | None = None
    """By holder: contiguous blocks from the start, at least 1."""
    loose: dict[int, set[int]] | None = None
    """By holder: other blocks that it has, counted from the start of the run."""
    named: int = 0
    """Places that name it."""


class Place(msgspec.Struct, frozen=True, gc=False):
    """Some blocks, one after the other, of one run."""

    run: Run
    depth: int
    """Of the first."""
    blocks: int


def common(held: bytes, begin: int, data: bytes, step: int) -> int:
    """How many blocks ``held`` has, from ``begin`` on, that ``data`` begins with."""
    reach = min(len(held) - begin, len(data))
    if held[begin : begin + reach] == data[:reach]:
        return reach // step
    low, high = 0, reach // step  # the first `low` are equal, the first `high` are not
    while high - low > 1:
        tried = (low + high) // 2
        if held[begin + low * step : begin + tried * step] == data[low * step : tried * step]:
            low = tried
        else:
            high = tried
    return low
