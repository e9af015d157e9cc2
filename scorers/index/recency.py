"""Which runs one endpoint holds, in order of last use (``scorers.index.order``).

The stretches of a run are linked from the deepest to the first, since the deepest is what is evicted and extended.
"""

from __future__ import annotations

from collections.abc import Iterator

from scorers.base import Slot
from scorers.index.order import Order
from scorers.index.stretch import Cut, Stretch
from scorers.index.tree import Node


class Recency(Order):
    """The runs that one endpoint holds, and how far into them each of its tiers reaches.

    Keeps the endpoint's bits in ``Node.full`` and ``Node.partial`` true, and removes nodes from the tree when they have
    no holder left. O(1) for each stretch used or evicted. Owner: the index.

    Invariant: the stretches of a run follow each other from its first block on, each older than the one before it;
    every run is newer than those below it.
    """

    __slots__ = ("_deepest",)

    def __init__(self, slot: Slot, tiers: int) -> None:
        super().__init__(slot, tiers)
        self._deepest: dict[Node, Stretch] = {}  # the last stretch of each run; the others are above it

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self._deepest)

    def __contains__(self, node: object) -> bool:
        return node in self._deepest

    def stretches_of(self, node: Node) -> Iterator[Stretch]:
        """Yield the stretches of ``node``, which must be held, deepest first."""
        stretch: Stretch | None = self._deepest[node]
        while stretch is not None:
            yield stretch
            stretch = stretch.above

    def deepest_of(self, node: Node | None) -> Stretch | None:
        """Return the deepest stretch of ``node``; None if it is not held."""
        return None if node is None else self._deepest.get(node)

    def held_of(self, node: Node) -> int:
        """Return how many blocks of ``node``, which must be held, at least one tier holds."""
        deepest = self._deepest[node]
        return deepest.start + self.held_of_stretch(deepest)

    def kept_of(self, node: Node, cut: Cut) -> int:
        """Return how many blocks of ``node`` the tier of ``cut`` holds."""
        if node.full & cut.bit:
            return node.blocks
        if not node.partial & cut.bit:
            return 0
        stretch = self._deepest[node]
        while not stretch.tiers & cut.mark and stretch.above is not None:
            stretch = stretch.above
        return stretch.start + cut.kept_of(stretch)

    def use(self, node: Node, now: float = 0.0, but: int = 0, blocks: int = 0) -> None:
        """Make the first ``blocks`` of ``node`` (0: all) the newest stretch, used at ``now``.

        All tiers hold it then, except those with the marks ``but``, which hold none of it. A path is used from its end
        to its start, then trimmed. ``now`` must not be before any earlier use.
        """
        blocks = blocks or node.blocks
        stretch = self._deepest.get(node)
        if stretch is None:
            stretch = self._deepest[node] = Stretch(node)
        elif stretch.above is None and stretch.blocks <= blocks:
            self._lift(stretch)
        else:
            stretch = self._gather(node, blocks)
        end = self._end
        newest = end.older
        stretch.newer, stretch.older, stretch.used_s, stretch.blocks = end, newest, now, blocks
        newest.newer = end.older = stretch
        held = self.whole
        stretch.tiers = self.every_tier & ~but if but else self.every_tier
        for cut in self.cuts:
            if but and cut.mark & but:
                held ^= cut.bit
                node.full &= ~cut.bit
                continue
            cut.used += blocks
            if cut.last is end:
                cut.last, cut.kept = stretch, blocks
        if blocks == node.blocks:
            node.full |= held
            if node.partial:
                node.partial &= ~self.whole
        else:
            node.partial = node.partial & ~self.whole | held & ~node.full

    def forget(self, node: Node, start: int = 0) -> None:
        """Drop ``node`` from its block ``start`` on from all tiers; it must be held, and stays in the tree."""
        for stretch in self.stretches_of(node):
            if stretch.start < start:
                self._deepest[node] = stretch
                if stretch.end > start and (rest := self._cut_off(stretch, start)) is not None:
                    self._drop(rest)
                    self._deepest[node] = stretch
                node.partial |= node.full & self.whole
                node.full &= ~self.whole
                return
            self._drop(stretch)
        node.full &= ~self.whole
        node.partial &= ~self.whole
        del self._deepest[node]

    def trim(self) -> None:
        """Evict what does not fit, tier by tier, oldest blocks first."""
        for cut in self.cuts:
            if cut.used > cut.capacity:
                self._trim(cut, cut.capacity)

    def evict(self, tier: int, blocks: int) -> None:
        """Evict the oldest ``blocks`` blocks of ``tier``."""
        cut = self.cuts[tier]
        self._trim(cut, max(0, cut.used - blocks))

    def evict_unused(self, tier: int, until_s: float) -> None:
        """Evict from ``tier`` everything that was last used at ``until_s`` or before."""
        cut = self.cuts[tier]
        while cut.last is not self._end and cut.last.used_s <= until_s:
            self._evict_last(cut)

    def split(self, upper: Node, lower: Node) -> None:
        """Follow a split in the tree, where ``upper`` was cut off from ``lower``."""
        at = upper.blocks
        kept = [(cut.bit, at + lower.blocks if lower.full & cut.bit else self.kept_of(lower, cut)) for cut in self.cuts]
        below: Stretch | None = None
        for stretch in self.stretches_of(lower):
            if stretch.start < at:
                break
            stretch.start -= at
            below = stretch
        else:
            raise RuntimeError(f"slot {self.slot} holds no beginning of a run")
        if stretch.end > at and (rest := self._cut_off(stretch, at)) is not None:
            rest.start, below = 0, rest
        if below is None:
            del self._deepest[lower]
        else:
            below.above = None
        self._deepest[upper] = stretch
        for each in self.stretches_of(upper):
            each.node = upper
        for bit, blocks in kept:
            if blocks >= at:
                upper.full |= bit
            elif blocks:
                upper.partial |= bit
            if blocks <= at:
                lower.partial &= ~bit
        if not lower.holders:
            lower.remove()

    def join(self, upper: Node, lower: Node) -> None:
        """Follow a join in the tree, where ``upper`` takes in ``lower``."""
        deepest = self._deepest.pop(lower, None)
        if deepest is None:
            return
        above, below, deeper = self._deepest[upper], deepest, None
        while True:
            below.node = upper
            below.start += upper.blocks
            if below.above is None:
                break
            deeper, below = below, below.above
        below.above = above
        self._deepest[upper] = deepest
        if self._are_one(above, below):
            self._unite(above, below, deeper)

    def use_for(self, node: Node, flow: str | None, now: float, but: int, blocks: int) -> None:  # noqa: ARG002
        """Use ``node`` as ``use`` does, and charge it to ``flow``; for None, charge it to no flow."""
        self.use(node, now, but, blocks)

    def dissolve(self) -> None:
        """Extend ``Order.dissolve``: forget the runs first."""
        self._deepest.clear()
        super().dissolve()

    def take_apart(self) -> Iterator[None]:
        """Extend ``Order.take_apart``: forget the runs first."""
        self._deepest.clear()
        yield from super().take_apart()

    def _unite(self, above: Stretch, below: Stretch, deeper: Stretch | None) -> None:
        """Add ``below`` to ``above``; ``deeper`` is the next stretch of the run, if there is one."""
        for cut in self.cuts:
            if cut.last is below:
                cut.last = above
                cut.kept += above.blocks
        above.blocks += below.blocks
        below.unlink()
        self._chain(above, deeper)
        self._vanished(below)
        below.tiers = 0

    def _cut_off(self, stretch: Stretch, at: int) -> Stretch | None:
        """Cut a stretch in two before the block ``at`` of its run; return the second part, None if no tier holds it."""
        front = at - stretch.start
        below = Stretch(stretch.node, stretch.blocks - front, at, stretch.tiers, stretch.used_s, stretch)
        stretch.blocks = front
        for cut in self.cuts:
            if cut.last is stretch:
                if cut.kept > front:
                    cut.last = below
                    cut.kept -= front
                else:
                    below.tiers &= ~cut.mark
        if not below.tiers:
            return None
        below.newer, below.older = stretch, stretch.older
        below.newer.older = below.older.newer = below
        deeper = self._deepest[stretch.node]
        if deeper is stretch:
            self._deepest[stretch.node] = below
        else:
            while deeper.above is not stretch and deeper.above is not None:
                deeper = deeper.above
            deeper.above = below
        self._divided(stretch, below)
        return below

    def _chain(self, stretch: Stretch, deeper: Stretch | None) -> None:
        """Make ``deeper`` the next stretch of the run after ``stretch``; None if there is none."""
        if deeper is None:
            self._deepest[stretch.node] = stretch
        else:
            deeper.above = stretch

    def _gather(self, node: Node, blocks: int) -> Stretch:
        """Lift all that is held of the first ``blocks`` of ``node``, and return it as one stretch, to be linked."""
        deeper: Stretch | None = None
        stretch = self._deepest[node]
        while stretch.start >= blocks and stretch.above is not None:
            deeper, stretch = stretch, stretch.above
        if stretch.end > blocks:
            deeper = self._cut_off(stretch, blocks) or deeper
        self._lift(stretch)
        while stretch.above is not None:
            self._vanished(stretch)
            stretch.tiers, stretch = 0, stretch.above
            self._lift(stretch)
        self._chain(stretch, deeper)
        return stretch

    def _drop(self, stretch: Stretch) -> None:
        self._lift(stretch)
        self._vanished(stretch)
        stretch.tiers = 0

    def _trim(self, cut: Cut, most: int) -> None:
        while cut.used > most:
            excess = cut.used - most
            if excess < cut.kept:
                node = cut.last.node
                node.full &= ~cut.bit
                node.partial |= cut.bit
                cut.kept -= excess
                cut.used -= excess
                return
            self._evict_last(cut)

    def _evict_last(self, cut: Cut) -> None:
        """Evict a tier's oldest stretch from it."""
        stretch = cut.last
        node = stretch.node
        node.full &= ~cut.bit
        if stretch.start:
            node.partial |= cut.bit
        else:
            node.partial &= ~cut.bit
        stretch.tiers ^= cut.mark
        self._retreat(cut)
        self._settle(stretch)

    def _settle(self, stretch: Stretch) -> None:
        """Remove a stretch from the order if no tier holds it; no deeper one of its run is held then either."""
        if stretch.tiers:
            return
        stretch.unlink()
        node = stretch.node
        if stretch.above is not None:
            self._deepest[node] = stretch.above
            return
        del self._deepest[node]
        if not node.holders:
            node.remove()
