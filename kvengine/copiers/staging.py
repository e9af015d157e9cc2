"""How small fragments become large copies: a slot's bytes lie together in host memory, so that they travel as they lie,
and only the device's side is scattered. Pure.

    host     │ b7 b8 b9 │ b7 b8 b9 │          one span, one copy over the bus
    staging  │ b7 b8 b9 │ b7 b8 b9 │
    device     b7 … b9 … b8 … b7 …           one kernel moves each piece to or from its block
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kvengine.copiers.descriptors import HostPieces, cut
from kvengine.layout import Addresses, Fragments


class Load(NamedTuple):
    """What goes through one place of the ring at a time. Offsets are in bytes, from the place's begin."""

    spans: Fragments
    """Over the bus; ``device`` is an offset."""
    device: Addresses
    offsets: Addresses
    sizes: Addresses
    """Moved by the kernel: the block's address, the offset, the bytes."""


def staged(fragments: Fragments, pieces: HostPieces, *, most_bytes: int, most_moves: int) -> Iterator[Load]:
    """The fragments, in loads of at most that many bytes and moves. Raises: ValueError for one that is larger."""
    order = np.argsort(fragments.host, kind="stable")
    device, host, sizes = (each[order] for each in fragments)
    if len(sizes) and sizes.max() > most_bytes:
        raise ValueError(f"a fragment of {sizes.max():,} bytes, and a place of {most_bytes:,}")
    ends = np.cumsum(sizes)
    begin, sent = 0, 0
    while begin < len(sizes):
        end = int(np.searchsorted(ends, sent + most_bytes, side="right"))
        end = min(end, begin + most_moves)
        part = slice(begin, end)
        offsets = ends[part] - sizes[part] - sent
        spans = cut(spanned(offsets, host[part], sizes[part]), pieces)
        yield Load(spans, device[part], offsets, sizes[part])
        begin, sent = end, int(ends[end - 1])


def spanned(offsets: Addresses, host: Addresses, sizes: Addresses) -> Fragments:
    """Neighbours in host memory as one; in the staging memory they are neighbours already."""
    breaks = np.flatnonzero(host[1:] != host[:-1] + sizes[:-1]) + 1
    starts = np.concatenate(([0], breaks))
    return Fragments(offsets[starts], host[starts], np.add.reduceat(sizes, starts))
