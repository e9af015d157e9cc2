"""How small fragments are combined into large copies over the bus. Pure functions.

A slot's bytes are contiguous in host memory and cross the bus in that order. Only on the device are they scattered:

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
    """The data that passes through one place of the ring at a time, in either direction.

    Offsets are in bytes, from the place's start.
    """

    spans: Fragments
    """The copies over the bus; their ``device`` is an offset."""
    device: Addresses
    """The addresses of the pieces that the kernel moves, in the device's blocks."""
    offsets: Addresses
    """The offsets of the same pieces in the place."""
    sizes: Addresses
    """The sizes of the same pieces, in bytes."""


def staged(fragments: Fragments, pieces: HostPieces, *, most_bytes: int, most_moves: int) -> Iterator[Load]:
    """Split the fragments into loads of at most ``most_bytes`` bytes and ``most_moves`` pieces.

    Raises: ValueError for a fragment of more than ``most_bytes``.
    """
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
    """Merge pieces that are adjacent in host memory; in the staging memory, they are adjacent already."""
    breaks = np.flatnonzero(host[1:] != host[:-1] + sizes[:-1]) + 1
    starts = np.concatenate(([0], breaks))
    return Fragments(offsets[starts], host[starts], np.add.reduceat(sizes, starts))
