"""What one endpoint holds, in order of last use, with one cut for each tier.

All tiers of an endpoint see the same requests, so they have one order, and LRU is a stack algorithm: a tier of any
capacity holds exactly the most recent blocks of it. So there is one list of runs for each endpoint, and a tier is the
place in it where its capacity ends:

    newest ─ run ─ run ─ run ─ ru│n ─ run ─ run ─ ru│n ─ oldest
                            GPU ends here     CPU ends here

A use makes the path's first run the newest and the deepest the oldest of the path: what is evicted is always a leaf,
its last block first, and what is held of a prompt is contiguous from its start.

Every run has the time of its last use, and the order is also the order of these times: what was used no later than some
moment is at the old end, and a tier whose engine reports how far its evictions have come loses exactly that.

A tier may admit a run later than other tiers do, or lose what another tier still uses. Such a tier is *gated*: it does
not hold everything on the newer side of its cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf

import msgspec

from scorers.base import Slot
from scorers.index.holders import slots_of
from scorers.index.tree import STEP, Node


class Entry(msgspec.Struct, gc=False, eq=False):
    """A run's place in an endpoint's order. Like its node, it is not tracked by the garbage collector."""

    node: Node
    used_s: float = 0.0
    newer: Entry = None  # type: ignore[assignment]  # linked as soon as it is made
    older: Entry = None  # type: ignore[assignment]


class Cut:
    """The place where a tier ends. Units: blocks.

    Invariant: ``used <= capacity`` between calls. All entries newer than ``last`` are held whole (if the tier is gated,
    whole or not at all); of ``last`` the first ``kept`` blocks are held (at least 1); nothing older is held. If the
    tier holds nothing, ``last`` is the list's end.
    """

    __slots__ = ("bit", "capacity", "kept", "last", "used")

    def __init__(self, bit: int, last: Entry) -> None:
        self.bit = bit
        self.last = last
        self.capacity = self.used = self.kept = 0


class Recency:
    """The runs that one endpoint holds, and how far into them each of its tiers reaches.

    Keeps the endpoint's bits in ``Node.full`` and ``Node.partial`` true, and removes nodes from the tree when they have
    no holder left. O(1) for each run used or evicted. Owner: the index.

    Invariant: a run has an entry exactly while a tier holds some of it; every run is newer than those below it, and
    used no earlier than any older one. ``gated`` has the bits of the gated tiers.
    """

    __slots__ = ("_end", "_entries", "cuts", "gated", "slot", "whole")

    def __init__(self, slot: Slot, tiers: int) -> None:
        self.slot = slot
        self._end = Entry(Node(None, b""))  # closes the ring: its newer is the oldest run, its older the newest
        self._end.newer = self._end.older = self._end
        self._entries: dict[Node, Entry] = {}
        self.cuts: tuple[Cut, ...] = tuple([Cut(1 << (slot * tiers + tier), self._end) for tier in range(tiers)])
        self.whole = sum(cut.bit for cut in self.cuts)
        self.gated = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Node]:
        """Iterate over the runs, newest first."""
        entry = self._end.older
        while entry is not self._end:
            yield entry.node
            entry = entry.older

    @property
    def capacity(self) -> int:
        """Capacity of the largest tier. Units: blocks."""
        return max([cut.capacity for cut in self.cuts])

    @property
    def used(self) -> int:
        """Blocks held by the fullest tier, and so by any tier. Units: blocks."""
        return max([cut.used for cut in self.cuts])

    def __contains__(self, node: object) -> bool:
        return node in self._entries

    @property
    def newest_s(self) -> float:
        """When anything was last used; 0 if nothing is held."""
        return self._end.older.used_s

    def used_s(self, node: Node) -> float:
        """Return when ``node``, which must be held, was last used."""
        return self._entries[node].used_s

    def held_of(self, node: Node) -> int:
        """Return how many blocks of ``node``, which must have an entry, at least one tier holds."""
        if node.full & self.whole:
            return node.blocks
        entry = self._entries[node]
        return max([cut.kept for cut in self.cuts if cut.last is entry and node.partial & cut.bit], default=0)

    def use(self, node: Node, now: float = 0.0, but: int = 0) -> None:
        """Make ``node`` the newest run, used at ``now``, and held whole in all tiers except those of the bits ``but``.

        The excepted tiers do not hold the run. A path is used from its end to its start, then trimmed. ``now`` must not
        be before any earlier use.
        """
        entry = self._entries.get(node)
        if entry is None:
            entry = self._entries[node] = Entry(node)
        else:
            self._lift(entry)
        newest = self._end.older
        entry.newer, entry.older, entry.used_s = self._end, newest, now
        newest.newer = self._end.older = entry
        held = self.whole & ~but if but else self.whole
        for cut in self.cuts:
            if cut.bit & held:
                cut.used += node.blocks
                if cut.last is self._end:
                    cut.last, cut.kept = entry, node.blocks
        node.full |= held
        if node.partial:
            node.partial &= ~self.whole

    def forget(self, node: Node) -> None:
        """Drop ``node`` from all tiers; it must be held, and stays in the tree."""
        self._lift(self._entries.pop(node))
        node.full &= ~self.whole
        node.partial &= ~self.whole

    def trim(self) -> None:
        """Evict what does not fit, tier by tier, oldest blocks first."""
        for cut in self.cuts:
            if cut.used > cut.capacity:
                self._trim(cut, cut.capacity)

    def oldest(self, tier: int) -> tuple[float, int]:
        """Return the oldest time of last use in ``tier``, and how many of its blocks have exactly that time.

        Returns infinity and 0 if the tier holds nothing.
        """
        cut = self.cuts[tier]
        entry = cut.last
        if entry is self._end:
            return inf, 0
        used_s, blocks = entry.used_s, cut.kept
        while (entry := entry.newer) is not self._end and entry.used_s == used_s:
            blocks += entry.node.blocks if entry.node.full & cut.bit else 0
        return used_s, blocks

    def evict(self, tier: int, blocks: int) -> None:
        """Evict the oldest ``blocks`` blocks of ``tier``."""
        cut = self.cuts[tier]
        self._trim(cut, max(0, cut.used - blocks))

    def is_older(self, tier: int, until_s: float) -> bool:
        """Return whether ``tier`` holds anything that was last used at ``until_s`` or before."""
        last = self.cuts[tier].last
        return last is not self._end and last.used_s <= until_s

    def evict_unused(self, tier: int, until_s: float) -> None:
        """Evict from ``tier`` everything that was last used at ``until_s`` or before."""
        cut = self.cuts[tier]
        while (entry := cut.last) is not self._end and entry.used_s <= until_s:
            node = entry.node
            node.full &= ~cut.bit
            node.partial &= ~cut.bit
            self._retreat(cut)
            self._discard_unheld(entry)

    def split(self, upper: Node, lower: Node) -> None:
        """Follow a split in the tree, where ``upper`` was cut off from ``lower``."""
        below = self._entries[lower]
        above = self._entries[upper] = Entry(upper, below.used_s)
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

    def are_one(self, upper: Node, lower: Node) -> bool:
        """Return whether nothing can be evicted between ``upper`` and ``lower``, the run right below it.

        That is so if they were last used at the same time and are next to each other in the order.
        """
        above, below = self._entries[upper], self._entries[lower]
        return above.older is below and above.used_s == below.used_s

    def join(self, upper: Node, lower: Node) -> None:
        """Follow a join in the tree, where ``upper`` takes in ``lower``.

        The same tiers hold both, and ``are_one`` is true for them.
        """
        above, below = self._entries[upper], self._entries.pop(lower)
        for cut in self.cuts:
            if cut.last is below:
                cut.last = above
                cut.kept += upper.blocks
        self._unlink(below)

    def dissolve(self) -> None:
        """Drop everything; must be the last call. Links are cut, since rings would wait for the garbage collector."""
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

    def take_apart(self) -> Iterator[None]:
        """Do what ``dissolve`` does in steps, for when the whole tree is discarded as well."""
        entry = self._end.older
        self._entries.clear()
        self.cuts = ()
        while entry is not self._end:
            for _ in range(STEP):
                if entry is self._end:
                    break
                older = entry.older
                del entry.newer, entry.older
                entry = older
            yield
        del self._end.newer, self._end.older

    def _lift(self, entry: Entry) -> None:
        """Remove an entry from the order and from the tiers' sums."""
        node = entry.node
        for cut in self.cuts:
            if cut.last is entry:
                self._retreat(cut)
            elif node.full & cut.bit:
                cut.used -= node.blocks
        self._unlink(entry)

    def _trim(self, cut: Cut, most: int) -> None:
        while cut.used > most:
            entry, excess = cut.last, cut.used - most
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
        """Move the tier's end to before its last entry."""
        cut.used -= cut.kept
        entry = cut.last.newer
        if self.gated & cut.bit:
            while entry is not self._end and not entry.node.full & cut.bit:
                entry = entry.newer
        cut.last = entry
        cut.kept = entry.node.blocks

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


def kept_of(endpoints: Mapping[Slot, Recency], tiers: int, node: Node, holders: int) -> Iterator[tuple[int, int]]:  # noqa: ARG001
    """Yield each holder's bit, and how many blocks of ``node`` it has; all of ``holders`` end within ``node``."""
    for slot in slots_of(holders, tiers):
        for cut in endpoints[slot].cuts:
            if cut.bit & holders:
                yield cut.bit, cut.kept
