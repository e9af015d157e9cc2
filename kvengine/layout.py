"""Where a block's bytes lie on the device, and where they lie in its slot.

On the device, a block is one page in every layer (or, in a block-outermost layout, one page of all layers). A *lane* is
the part of this pattern that repeats from block to block: adjacent pages form one lane. In a slot, the lanes follow one
another, and each holds the chunk's blocks in order. Blocks that are adjacent on the device, too, are then one copy:

    device   lane 0: ─ b7 b8 b9 ─ …        lane 1: ─ b7 b8 b9 ─ …
    slot     │ b7 b8 b9 │ b7 b8 b9 │ …
               lane 0      lane 1
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Addresses = npt.NDArray[np.int64]


class Page(NamedTuple):
    """Where one layer's blocks lie: block ``b`` is ``page_bytes`` bytes at ``base + b * stride_bytes``."""

    base: int
    stride_bytes: int
    page_bytes: int


class Fragments(NamedTuple):
    """Pieces to copy, each contiguous on both sides. Shapes: all [n]. Units: addresses and bytes."""

    device: Addresses
    host: Addresses
    sizes: Addresses


class Layout:
    """The geometry of one worker's KV cache. Immutable."""

    def __init__(self, pages: Sequence[Page], blocks: int, chunk_blocks: int) -> None:
        """``pages``: one per layer; ``blocks``: the number on the device; ``chunk_blocks``: blocks per slot."""
        self.lanes = merged(pages)
        self.blocks = blocks
        self.chunk_blocks = chunk_blocks
        self.block_bytes = sum(lane.page_bytes for lane in self.lanes)
        self.slot_bytes = self.block_bytes * chunk_blocks

    def fragments(self, device_blocks: Sequence[int], slots: Sequence[int], first: int, arena: int) -> Fragments:
        """Return the pieces to copy between ``device_blocks`` and ``slots``.

        ``device_blocks`` are consecutive blocks of the chunks in ``slots``, beginning with block ``first`` of the first
        chunk. ``arena`` is the address of slot 0.

        Raises: ValueError for a block that does not exist, or when there are more blocks than the slots hold.
        """
        blocks = np.asarray(device_blocks, dtype=np.int64)
        at = np.arange(first, first + len(blocks), dtype=np.int64)
        chunk, within = at // self.chunk_blocks, at % self.chunk_blocks
        if len(blocks) and (chunk[-1] >= len(slots) or first < 0):
            raise ValueError(f"blocks {first} to {at[-1]} of {len(slots)} chunks of {self.chunk_blocks}")
        if len(blocks) and (blocks.min() < 0 or blocks.max() >= self.blocks):
            raise ValueError(f"a block of {blocks.min()} to {blocks.max()} is none of {self.blocks}")
        in_slot = arena + np.asarray(slots, dtype=np.int64)[chunk] * self.slot_bytes
        device, host, sizes = [], [], []
        offset = 0
        for lane in self.lanes:
            pieces = joined(
                lane.base + blocks * lane.stride_bytes, in_slot + offset + within * lane.page_bytes, lane.page_bytes
            )
            device.append(pieces.device)
            host.append(pieces.host)
            sizes.append(pieces.sizes)
            offset += lane.page_bytes * self.chunk_blocks
        return Fragments(np.concatenate(device), np.concatenate(host), np.concatenate(sizes))


def merged(pages: Sequence[Page]) -> tuple[Page, ...]:
    """Return the lanes: adjacent pages of equal stride are merged into one, and duplicate pages are dropped."""
    lanes: list[Page] = []
    for page in sorted(set(pages)):
        last = lanes[-1] if lanes else None
        if last is not None and last.stride_bytes == page.stride_bytes and last.base + last.page_bytes == page.base:
            lanes[-1] = Page(last.base, last.stride_bytes, last.page_bytes + page.page_bytes)
        else:
            lanes.append(page)
    return tuple(lanes)


def joined(device: Addresses, host: Addresses, size_bytes: int) -> Fragments:
    """Return pieces of ``size_bytes`` each as fragments, merging those that are adjacent on both sides."""
    if not len(device):
        return Fragments(device, host, device)
    breaks = np.flatnonzero((np.diff(device) != size_bytes) | (np.diff(host) != size_bytes)) + 1
    starts = np.concatenate(([0], breaks))
    counts = np.diff(np.concatenate((starts, [len(device)])))
    return Fragments(device[starts], host[starts], counts * size_bytes)
