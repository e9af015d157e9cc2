"""Prepares the copies that a device is given: pieces cut to its limits, in batches that it accepts. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kvengine.copiers.base import Direction
from kvengine.layout import Addresses, Fragments

BATCH = 1024
"""Most copies begun in one call. A call holds the driver's lock for about 0.6 µs per copy, and the engine's launches
wait meanwhile. Source: vLLM's pull request 48434 (8,192 copies: 5.1 ms)."""


class HostPieces(NamedTuple):
    """The pieces of host memory that were pinned one by one: ``size_bytes`` each, the first at ``origin``.

    A device copy must lie within one piece.
    """

    origin: int
    size_bytes: int


def checked(fragments: Fragments) -> Fragments:
    """Return the same fragments as arrays of 64-bit numbers.

    Raises: ValueError when the arrays differ in length, or a size is negative.
    """
    device, host, sizes = (np.ascontiguousarray(each, dtype=np.int64) for each in fragments)
    if not len(device) == len(host) == len(sizes):
        raise ValueError(f"{len(device)} places on the device, {len(host)} in host memory and {len(sizes)} sizes")
    if len(sizes) and sizes.min() < 0:
        raise ValueError(f"a piece of {sizes.min()} bytes")
    return Fragments(device, host, sizes)


def cut(fragments: Fragments, pieces: HostPieces) -> Fragments:
    """Return fragments with the same bytes, each of them within one piece of host memory."""
    device, host, sizes = fragments
    if not len(sizes):
        return fragments
    begin = host - pieces.origin
    first = begin // pieces.size_bytes
    parts = np.maximum((begin + sizes - 1) // pieces.size_bytes, first) - first + 1
    if parts.max() == 1:
        return fragments
    of = np.repeat(np.arange(len(sizes)), parts)
    nth = np.arange(len(of)) - np.repeat(np.cumsum(parts) - parts, parts)
    starts = np.where(nth == 0, begin[of], (first[of] + nth) * pieces.size_bytes)
    ends = np.minimum((begin + sizes)[of], (first[of] + nth + 1) * pieces.size_bytes)
    return Fragments(device[of] + starts - begin[of], starts + pieces.origin, ends - starts)


def split(fragments: Fragments, below_bytes: int) -> tuple[Fragments, Fragments]:
    """Split the fragments into those of less than ``below_bytes`` and the others."""
    small = fragments.sizes < below_bytes
    if not small.any():
        return Fragments(*(each[:0] for each in fragments)), fragments
    return Fragments(*(each[small] for each in fragments)), Fragments(*(each[~small] for each in fragments))


def ends(direction: Direction, device: Addresses, host: Addresses) -> tuple[Addresses, Addresses]:
    """Return the destinations and the sources of copies in ``direction``."""
    return (device, host) if direction is Direction.LOAD else (host, device)


def batches(count: int, most: int = BATCH) -> Iterator[slice]:
    """Divide ``count`` items into slices of at most ``most``."""
    for begin in range(0, count, most):
        yield slice(begin, min(begin + most, count))
