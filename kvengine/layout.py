"""Where a block's bytes lie on the device, and where in its slot.

On the device a block is one page in every layer (or, in a block-outermost layout, one page of all layers). A *lane* is
what repeats from block to block: pages that are neighbours are one lane. In a slot the lanes lie one after the other,
each with the chunk's blocks in their order, so that blocks that are neighbours on the device too are one copy:

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
    """One layer's place: block ``b`` is the ``page_bytes`` from ``base + b * stride_bytes`` on."""

    base: int
    stride_bytes: int
    page_bytes: int


class Fragments(NamedTuple):
    """Pieces to be copied, each contiguous on both sides. Shapes: all [n]. Units: addresses and bytes."""

    device: Addresses
    host: Addresses
    sizes: Addresses


class Layout:
    """The geometry of one worker's KV cache. Immutable."""

    def __init__(self, pages: Sequence[Page], blocks: int, chunk_blocks: int) -> None:
        """``pages`` of every layer; ``blocks`` on the device; ``chunk_blocks`` to a slot."""
        self.lanes = merged(pages)
        self.blocks = blocks
        self.chunk_blocks = chunk_blocks
        self.block_bytes = sum(lane.page_bytes for lane in self.lanes)
        self.slot_bytes = self.block_bytes * chunk_blocks

    def fragments(self, device_blocks: Sequence[int], slots: Sequence[int], first: int, arena: int) -> Fragments:
        """The pieces of ``device_blocks``, which are consecutive blocks of the chunks in ``slots``, from the block
        ``first`` of the first chunk on; ``arena`` is the address of slot 0.

        Raises: ValueError for a block or slot that does not exist, or when there are more blocks than the slots hold.
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
    """The lanes: pages that follow each other without a gap, in every block, become one; the same page twice is one."""
    lanes: list[Page] = []
    for page in sorted(set(pages)):
        last = lanes[-1] if lanes else None
        if last is not None and last.stride_bytes == page.stride_bytes and last.base + last.page_bytes == page.base:
            lanes[-1] = Page(last.base, last.stride_bytes, last.page_bytes + page.page_bytes)
        else:
            lanes.append(page)
    return tuple(lanes)


def joined(device: Addresses, host: Addresses, size_bytes: int) -> Fragments:
    """Pieces of ``size_bytes`` each, neighbours on both sides made one."""
    if not len(device):
        return Fragments(device, host, device)
    breaks = np.flatnonzero((np.diff(device) != size_bytes) | (np.diff(host) != size_bytes)) + 1
    starts = np.concatenate(([0], breaks))
    counts = np.diff(np.concatenate((starts, [len(device)])))
    return Fragments(device[starts], host[starts], counts * size_bytes)
