"""A stretch of blocks in which no known prompt ends or branches off: its tokens, and how much each holder has of it."""

from __future__ import annotations

import msgspec

BYTES_PER_TOKEN = 4


class Run(msgspec.Struct, gc=False, eq=False):
    """A node of the prefix tree: consecutive blocks with their tokens and holders.

    Invariant: ``parent.children[data[:block]] is self``, unless the run is a root or has been dropped because it has no
    holders any more. A dropped run is kept while places name it, since its earlier part may have been split off.
    """

    number: int
    parent: Run | None
    start: int
    """The depth of the run's first block."""
    data: bytes
    """The run's tokens, in the form of ``scorers.base.Prompt.data``."""
    blocks: int
    block_tokens: int
    identity: bytes = b""
    """The identity of the prompts below a root; empty for other runs."""
    children: dict[bytes, Run] | None = None
    have: dict[int, int] | None = None
    """By holder: how many contiguous blocks it has from the run's start, at least 1."""
    loose: dict[int, set[int]] | None = None
    """By holder: the other blocks that it has, counted from the run's start."""
    named: int = 0
    """How many places name this run."""


class Place(msgspec.Struct, frozen=True, gc=False):
    """Consecutive blocks of one run."""

    run: Run
    depth: int
    """The depth of the first block."""
    blocks: int


def common(held: bytes, begin: int, data: bytes, step: int) -> int:
    """Return how many whole blocks ``held``, from ``begin`` on, has in common with the start of ``data``."""
    reach = min(len(held) - begin, len(data))
    if held[begin : begin + reach] == data[:reach]:
        return reach // step
    low, high = 0, reach // step  # the first `low` blocks are equal, the first `high` are not
    while high - low > 1:
        tried = (low + high) // 2
        if held[begin + low * step : begin + tried * step] == data[low * step : tried * step]:
            low = tried
        else:
            high = tried
    return low
