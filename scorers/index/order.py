"""What one endpoint holds, as stretches in order of last use, with one cut for each tier.

All tiers of an endpoint see the same requests, so they have one order, and LRU is a stack algorithm: a tier of any
capacity holds exactly the most recent blocks of it. So there is one list of stretches for each endpoint, and a tier is
the place in it where its capacity ends:

    newest ─ stretch ─ stretch ─ str│etch ─ stretch ─ str│etch ─ oldest
                             GPU ends here          CPU ends here

A use makes the path's first run the newest and the deepest the oldest of the path: what is evicted is always the end of
what is held of some prompt, its last block first, and what is held of a prompt is contiguous from its start.

Every stretch has the time of its last use, and the order is also the order of these times: what was used no later than
some moment is at the old end, and a tier whose engine reports how far its evictions have come loses exactly that.

A tier may admit a run later than other tiers do, or lose what another tier still uses. Such a tier is *gated*: it does
not hold everything on the newer side of its cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from scorers.base import Slot
from scorers.index.stretch import Cut, Stretch
from scorers.index.tree import STEP, Node


class Order:
    """The stretches that one endpoint holds, newest first, and where in them each of its tiers ends.

    Invariant: a stretch is in the order exactly while a tier holds some of it; no stretch was used before an older one.
    ``gated`` has the marks of the gated tiers.
    """

    __slots__ = ("_end", "cuts", "every_tier", "flow", "gated", "slot", "whole")

    bounds_flows = False
    """Whether each use is charged to a flow. If not, the calls about flows do nothing."""

    def __init__(self, slot: Slot, tiers: int) -> None:
        self.slot = slot
        self._end = Stretch(Node(None, b""))  # closes the ring: its newer is the oldest, its older the newest
        self._end.newer = self._end.older = self._end
        self.cuts: tuple[Cut, ...] = tuple(
            [Cut(1 << (slot * tiers + tier), 1 << tier, self._end) for tier in range(tiers)]
        )
        self.whole = sum([cut.bit for cut in self.cuts])
        """The endpoint's bits in ``Node.full`` and ``Node.partial``, of all tiers."""
        self.every_tier = sum([cut.mark for cut in self.cuts])
        """The marks of all tiers in ``Stretch.tiers``."""
        self.gated = 0
        self.flow = ""
        """The flow that is charged for the next use."""

    def __iter__(self) -> Iterator[Stretch]:
        """Iterate over the stretches, newest first."""
        stretch = self._end.older
        while stretch is not self._end:
            yield stretch
            stretch = stretch.older

    @property
    def capacity(self) -> int:
        """Capacity of the largest tier. Units: blocks."""
        return max([cut.capacity for cut in self.cuts])

    @property
    def used(self) -> int:
        """Blocks held by the fullest tier, and so by any tier. Units: blocks."""
        return max([cut.used for cut in self.cuts])

    @property
    def newest_s(self) -> float:
        """When anything was last used; 0 if nothing is held."""
        return self._end.older.used_s

    def held_of_stretch(self, stretch: Stretch) -> int:
        """Return how many blocks of ``stretch`` at least one tier holds."""
        return max([cut.kept_of(stretch) for cut in self.cuts])

    def oldest(self, tier: int) -> tuple[float, int]:
        """Return the oldest time of last use in ``tier``, and how many of its blocks have exactly that time.

        Returns infinity and 0 if the tier holds nothing.
        """
        cut = self.cuts[tier]
        stretch = cut.last
        if stretch is self._end:
            return inf, 0
        used_s, blocks = stretch.used_s, cut.kept
        while (stretch := stretch.newer) is not self._end and stretch.used_s == used_s:
            blocks += cut.kept_of(stretch)
        return used_s, blocks

    def is_older(self, tier: int, until_s: float) -> bool:
        """Return whether ``tier`` holds anything that was last used at ``until_s`` or before."""
        last = self.cuts[tier].last
        return last is not self._end and last.used_s <= until_s

    def dissolve(self) -> None:
        """Drop everything; must be the last call. Links are cut, since rings would wait for the garbage collector."""
        stretch = self._end.older
        while stretch is not self._end:
            node, older = stretch.node, stretch.older
            node.full &= ~self.whole
            node.partial &= ~self.whole
            if not node.holders:
                node.remove()
            del stretch.newer, stretch.older
            stretch = older
        del self._end.newer, self._end.older
        self.cuts = ()

    def take_apart(self) -> Iterator[None]:
        """Do what ``dissolve`` does in steps, for when the whole tree is discarded as well."""
        stretch = self._end.older
        self.cuts = ()
        while stretch is not self._end:
            for _ in range(STEP):
                if stretch is self._end:
                    break
                older = stretch.older
                del stretch.newer, stretch.older
                stretch = older
            yield
        del self._end.newer, self._end.older

    # What ``scorers.index.flow_share`` extends.

    def flow_of(self, stretch: Stretch) -> str | None:  # noqa: ARG002
        """Return the flow that a held stretch is charged to; None if it is charged to none."""
        return None

    def set_bound(self, blocks: int) -> None:
        """Set how many ``blocks`` a flow may hold; flows that hold more lose the rest at once."""

    def trim_flows(self) -> None:
        """Evict what flows hold above the bound."""

    def faults(self) -> Iterator[str]:
        """Yield one sentence for each invariant of the flows that does not hold."""
        yield from ()

    @property
    def evicted_blocks(self) -> int:
        """Blocks evicted so far because a flow held more than its bound."""
        return 0

    def _are_one(self, above: Stretch, below: Stretch) -> bool:
        """Return whether nothing can be evicted between two stretches that follow each other in a run."""
        return above.older is below and above.used_s == below.used_s and above.tiers == below.tiers

    def _divided(self, stretch: Stretch, below: Stretch) -> None:
        """A stretch was cut in two; both parts are held."""

    def _vanished(self, stretch: Stretch) -> None:
        """A stretch is no longer held, or was united with another one."""

    def _lift(self, stretch: Stretch) -> None:
        """Remove a stretch from the order and from the tiers' sums."""
        for cut in self.cuts:
            if cut.last is stretch:
                self._retreat(cut)
            elif stretch.tiers & cut.mark:
                cut.used -= stretch.blocks
        stretch.newer.older = stretch.older
        stretch.older.newer = stretch.newer

    def _retreat(self, cut: Cut) -> None:
        """Move the tier's end to before its last stretch."""
        cut.used -= cut.kept
        stretch = cut.last.newer
        if self.gated & cut.mark:
            while stretch is not self._end and not stretch.tiers & cut.mark:
                stretch = stretch.newer
        cut.last = stretch
        cut.kept = stretch.blocks
