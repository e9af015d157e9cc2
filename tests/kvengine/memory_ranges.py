"""Ranges of memory, as sorted arrays of begins and ends."""

from __future__ import annotations

import numpy as np

from kvengine.layout import Addresses


def sorted_ranges(ranges: tuple[Addresses, Addresses]) -> tuple[Addresses, Addresses]:
    begins, sizes = ranges
    order = np.argsort(begins)
    return begins[order].astype(np.int64), (begins + sizes)[order].astype(np.int64)


def overlap(one: tuple[Addresses, Addresses], other: tuple[Addresses, Addresses]) -> bool:
    """Return whether any range of ``one`` overlaps any range of ``other``.

    The ranges of each list do not overlap each other where it matters.
    """
    begins, ends = one
    theirs, their_ends = other
    if not len(begins) or not len(theirs) or ends.max() <= theirs[0] or their_ends.max() <= begins[0]:
        return False
    # Of the other ranges that begin before this one ends, the last to end must end before this one begins.
    before = np.searchsorted(theirs, ends, side="left")
    latest = np.maximum.accumulate(their_ends)
    return bool((before > 0).any() and (latest[np.maximum(before, 1) - 1] > begins)[before > 0].any())
