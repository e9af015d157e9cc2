"""What one endpoint holds, in the order of last use, with one cut for each tier.

All tiers of an endpoint see the same requests, so they have one order, and LRU is a stack algorithm: a tier of any
capacity holds exactly the most recent blocks of it. So there is one list of runs for each endpoint, and a tier is the
place in it where its capacity ends:

    newest ─ run ─ run ─ run ─ ru│n ─ run ─ run ─ ru│n ─ oldest
                            GPU ends here     CPU ends here

A use makes the path's first run the newest and the deepest the oldest of the path: what is evicted is always a leaf,
its last block first, and what is held of a prompt is contiguous from its start.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from scorers.base import Slot
from scorers.tree import Node


class Entry(msgspec.Struct, gc=False, eq=False):
    """A run's place in an endpoint's order. As little the garbage collector's as its node is."""

    node: Node
    newer: Entry = None  # type: ignore[assignment]  # linked as soon as it is made
    older: Entry = None  # type: ignore[assignment]


class Cut:
    """Where a tier ends. Units: blocks.

    Invariant: ``used <= capacity`` between calls; all entries newer than ``last`` are held whole, of ``last`` the first
    ``kept`` blocks (at least 1), and nothing older. With nothing held, ``last`` is the list's end.
    """

    __slots__ = ("bit", "capacity", "kept", "last", "used")

    def __init__(self, bit: int, last: Entry) -> None:
        self.bit = bit
        self.last = last
        self.capacity = self.used = self.kept = 0


class Recency:
    """The runs that one endpoint holds, and how far into them each of its tiers reaches.

    Keeps the endpoint's bits in ``Node.full`` and ``Node.partial`` true, and takes nodes out of the tree that nobody
    holds any more. O(1) for each run used or evicted. Owner: the index.

    Invariant: a run has an entry exactly while a tier holds some of it; every run is newer than those below it.
    """

    __slots__ = ("_end", "_entries", "cuts", "slot", "whole")

    def __init__(self, slot: Slot, tiers: int) -> None:
        self.slot = slot
        self._end = Entry(Node(None, b""))  # closes the ring: newer than it is the oldest, older the newest
        self._end.newer = self._end.older = self._end
        self._entries: dict[Node, Entry] = {}
        self.cuts: tuple[Cut, ...] = tuple([Cut(1 << (slot * tiers + tier), self._end) for tier in range(tiers)])
        self.whole = sum(cut.bit for cut in self.cuts)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Node]:
        """Newest first."""
        entry = self._end.older
        while entry is not self._end:
            yield entry.node
            entry = entry.older

    @property
    def capacity(self) -> int:
        """Of the largest tier. Units: blocks."""
        return max([cut.capacity for cut in self.cuts])

    @property
    def used(self) -> int:
        """In the tier that holds most, and so in any of them. Units: blocks."""
        return max([cut.used for cut in self.cuts])

    def use(self, node: Node) -> None:
        """Make ``node`` the newest, held whole in all tiers; a path is used from its end to its start, then trimmed."""
        entry = self._entries.get(node)
        if entry is None:
            entry = self._entries[node] = Entry(node)
        else:
            self._lift(entry)
        newest = self._end.older
        entry.newer, entry.older = self._end, newest
        newest.newer = self._end.older = entry
        for cut in self.cuts:
            cut.used += node.blocks
            if cut.last is self._end:
                cut.last, cut.kept = entry, node.blocks
        node.full |= self.whole
        if node.partial:
            node.partial &= ~self.whole

    def forget(self, node: Node) -> None:
        """Hold nothing of ``node``, which is held and not taken out of the tree, in any tier."""
        self._lift(self._entries.pop(node))
        node.full &= ~self.whole
        node.partial &= ~self.whole

    def trim(self) -> None:
        """Evict what does not fit, tier by tier, oldest blocks first."""
        for cut in self.cuts:
            if cut.used > cut.capacity:
                self._trim(cut)

    def split(self, upper: Node, lower: Node) -> None:
        """Follow the tree, where ``upper`` was cut off from ``lower``."""
        below = self._entries[lower]
        above = self._entries[upper] = Entry(upper)
        above.newer, above.older = below.newer, below
        below.newer.older = above
        below.newer = above
        for cut in self.cuts:
            if cut.last is not below:
                upper.full |= lower.full & cut.bit
            elif cut.kept > upper.blocks:
                upper.full |= cut.bit
                cut.kept -= upper.blocks
            else:
                lower.partial &= ~cut.bit
                cut.last = above
                if cut.kept == upper.blocks:
                    upper.full |= cut.bit
                else:
                    upper.partial |= cut.bit
        self._discard_unheld(below)

    def dissolve(self) -> None:
        """Hold nothing any more; the last call. Links are cut, since rings would wait for the garbage collector."""
        entry = self._end.older
        while entry is not self._end:
            node, older = entry.node, entry.older
            node.full &= ~self.whole
            node.partial &= ~self.whole
            if not node.holders:
                node.remove()
            del entry.newer, entry.older
            entry = older
        del self._end.newer, self._end.older
        self._entries.clear()
        self.cuts = ()

    def _lift(self, entry: Entry) -> None:
        """Take an entry out of the order and of the tiers' sums."""
        node = entry.node
        for cut in self.cuts:
            if cut.last is entry:
                self._retreat(cut)
            elif node.full & cut.bit:
                cut.used -= node.blocks
        self._unlink(entry)

    def _trim(self, cut: Cut) -> None:
        while cut.used > cut.capacity:
            entry, excess = cut.last, cut.used - cut.capacity
            node = entry.node
            node.full &= ~cut.bit
            if excess < cut.kept:
                node.partial |= cut.bit
                cut.kept -= excess
                cut.used -= excess
                return
            node.partial &= ~cut.bit
            self._retreat(cut)
            self._discard_unheld(entry)

    def _retreat(self, cut: Cut) -> None:
        """Let the tier end before its last entry."""
        cut.used -= cut.kept
        cut.last = cut.last.newer
        cut.kept = cut.last.node.blocks

    def _discard_unheld(self, entry: Entry) -> None:
        node = entry.node
        if not node.holders & self.whole:
            self._unlink(entry)
            del self._entries[node]
            if not node.holders:
                node.remove()

    @staticmethod
    def _unlink(entry: Entry) -> None:
        entry.newer.older = entry.older
        entry.older.newer = entry.newer
