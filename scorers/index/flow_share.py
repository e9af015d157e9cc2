"""Limit how much of an endpoint one flow's prompts may occupy, so that no flow can fill it alone.

A flow is all requests with the same fairness id. A stretch is charged to the flow that used it last, and so is
everything that comes before it: a beginning that several flows share is charged to one of them at a time. A flow that
holds more than its bound loses its own least recently used blocks, ends of prompts first. Where another flow's prompt
continues from such a block, the block cannot be evicted, since what is held is always a prefix. It is then charged to
no flow until it is used again.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from scorers.base import Slot
from scorers.index.recency import Recency
from scorers.index.stretch import Stretch
from scorers.index.tree import Node


class Charge(msgspec.Struct, gc=False, eq=False):
    """What a stretch costs, and its place in the order of the flow that it is charged to; ``flow`` may be None."""

    stretch: Stretch | None
    blocks: int = 0
    """Blocks that any tier holds."""
    flow: Flow | None = None
    newer: Charge = None  # type: ignore[assignment]  # linked while charged to a flow
    older: Charge = None  # type: ignore[assignment]


class Flow:
    """One flow's charges in order of last use, as a ring that ``end`` closes: ``end.newer`` is the oldest charge."""

    __slots__ = ("blocks", "end", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.blocks = 0
        self.end = Charge(None)
        self.end.newer = self.end.older = self.end

    def __iter__(self) -> Iterator[Charge]:
        """Iterate over the charges, oldest first."""
        charge = self.end.newer
        while charge is not self.end:
            yield charge
            charge = charge.newer

    @property
    def is_empty(self) -> bool:
        """Whether nothing is charged to the flow."""
        return self.end.newer is self.end

    def add(self, charge: Charge, older: Charge) -> None:
        """Charge ``charge`` to this flow, as the next newer one after ``older``."""
        charge.flow = self
        charge.older, charge.newer = older, older.newer
        older.newer.older = charge
        older.newer = charge
        self.blocks += charge.blocks

    def drop(self, charge: Charge) -> None:
        """Remove ``charge`` from this flow."""
        charge.newer.older = charge.older
        charge.older.newer = charge.newer
        charge.flow = None
        self.blocks -= charge.blocks

    def dissolve(self) -> None:
        """Cut the ring's links, since the garbage collector does not track them."""
        charge = self.end.newer
        while charge is not self.end:
            following = charge.newer
            charge.flow = None
            del charge.newer, charge.older
            charge = following
        del self.end.newer, self.end.older


class FlowRecency(Recency):
    """Recency with a bound for each flow. O(1) for each stretch that is used, evicted, or no longer charged.

    Invariant: every stretch has a charge of as many blocks as is held of it; between calls no flow is charged for more
    than ``bound``.
    """

    __slots__ = ("_below", "_charges", "_evicted_blocks", "_flows", "bound")

    bounds_flows = True

    def __init__(self, slot: Slot, tiers: int) -> None:
        super().__init__(slot, tiers)
        self.bound = 0
        self._evicted_blocks = 0
        self._charges: dict[Stretch, Charge] = {}
        self._below: dict[Node, int] = {}  # runs that are held right below a run; absent if there are none
        self._flows: dict[str, Flow] = {}

    @property
    def evicted_blocks(self) -> int:
        """Blocks evicted so far because a flow held more than its bound."""
        return self._evicted_blocks

    def set_bound(self, blocks: int) -> None:
        """Set how many ``blocks`` a flow may hold; flows that hold more lose the rest at once."""
        self.bound = blocks
        self.trim_flows()

    def trim_flows(self) -> None:
        """Evict what flows hold above the bound."""
        for name in sorted(self._flows):  # the order decides which shared beginnings are charged to no flow
            if name in self._flows:
                self._trim_flow(self._flows[name])

    def held_by(self, flow: str) -> int:
        """Return how many blocks are charged to ``flow``."""
        return self._flows[flow].blocks if flow in self._flows else 0

    def use(self, node: Node, now: float = 0.0, but: int = 0, blocks: int = 0) -> None:
        """Extend ``Recency.use``: charge the stretch to the current flow."""
        super().use(node, now, but, blocks)
        stretch = self._end.older
        charge = self._charges.get(stretch)
        if charge is None:
            charge = self._charges[stretch] = Charge(stretch)
            self._count_below(node, 1)
        elif charge.flow is not None:
            self._drop_charge(charge)
        charge.blocks = stretch.blocks
        flow = self._flows.get(self.flow)
        if flow is None:
            flow = self._flows[self.flow] = Flow(self.flow)
        flow.add(charge, flow.end.older)

    def use_for(self, node: Node, flow: str | None, now: float, but: int, blocks: int) -> None:
        """Use ``node`` as ``use`` does, and charge it to ``flow``; for None, charge it to no flow."""
        self.flow = flow or ""
        self.use(node, now, but, blocks)
        if flow is None:
            self._drop_charge(self._charges[self._end.older])

    def flow_of(self, stretch: Stretch) -> str | None:
        """Return the flow that a held stretch is charged to; None if it is charged to none."""
        flow = self._charges[stretch].flow
        return None if flow is None else flow.name

    def trim(self) -> None:
        """Extend ``Recency.trim``: evict the current flow's excess first."""
        flow = self._flows.get(self.flow)
        if flow is not None:
            self._trim_flow(flow)
        super().trim()
        for tier in range(len(self.cuts)):
            self._recharge_last(tier)

    def evict_unused(self, tier: int, until_s: float) -> None:
        """Extend ``Recency.evict_unused``: adjust the charge of the tier's last stretch."""
        super().evict_unused(tier, until_s)
        self._recharge_last(tier)

    def evict(self, tier: int, blocks: int) -> None:
        """Extend ``Recency.evict``: adjust the charge of the tier's last stretch."""
        super().evict(tier, blocks)
        self._recharge_last(tier)

    def split(self, upper: Node, lower: Node) -> None:
        """Extend ``Recency.split``: count the lower part as a run below the upper one."""
        super().split(upper, lower)
        if lower in self:
            self._below[upper] = 1

    def join(self, upper: Node, lower: Node) -> None:
        """Extend ``Recency.join``: count the runs below ``lower`` as runs below ``upper``."""
        if lower in self:
            self._below.pop(upper)
            if lower in self._below:
                self._below[upper] = self._below.pop(lower)
        super().join(upper, lower)

    def dissolve(self) -> None:
        """Extend ``Recency.dissolve``: discard the charges first."""
        for _ in self._take_flows_apart():
            pass
        super().dissolve()

    def take_apart(self) -> Iterator[None]:
        """Extend ``Recency.take_apart``: discard the charges first, one flow at each step."""
        yield from self._take_flows_apart()
        yield from super().take_apart()

    def faults(self) -> Iterator[str]:
        """Yield one sentence for each invariant that does not hold."""
        place = {stretch: position for position, stretch in enumerate(self)}
        below: dict[Node, int] = {}
        for node in {stretch.node for stretch in place}:
            if node.parent is not None:
                below[node.parent] = below.get(node.parent, 0) + 1
        if below != self._below:
            yield f"slot {self.slot}: runs below others are counted wrongly"
        if set(self._charges) != set(place):
            yield f"slot {self.slot}: its charges are not of the stretches that it holds"
        if any(charge.blocks != self.held_of_stretch(stretch) for stretch, charge in self._charges.items()):
            yield f"slot {self.slot}: a charge is not what its stretch holds"
        for name, flow in self._flows.items():
            charges = list(flow)
            order = [place[charge.stretch] for charge in charges if charge.stretch in place]
            if order != sorted(order, reverse=True) or any(charge.flow is not flow for charge in charges):
                yield f"slot {self.slot}: the order of flow {name!r} is not that of last use"
            if flow.blocks != sum([charge.blocks for charge in charges]) or flow.blocks > self.bound or not charges:
                yield f"slot {self.slot}: flow {name!r} is counted with {flow.blocks} blocks; its bound is {self.bound}"

    def _take_flows_apart(self) -> Iterator[None]:
        self._charges.clear()
        self._below.clear()
        for flow in self._flows.values():
            flow.dissolve()
            yield
        self._flows.clear()

    def _trim_flow(self, flow: Flow) -> None:
        while flow.blocks > self.bound:
            charge, excess = flow.end.newer, flow.blocks - self.bound
            stretch = charge.stretch
            if stretch is None:
                raise RuntimeError(f"flow {flow.name!r} is counted with {flow.blocks} blocks and holds none")
            node = stretch.node
            if excess < charge.blocks:
                stretch = self._cut_off(stretch, stretch.start + charge.blocks - excess) or stretch
            if self._deepest[node] is not stretch or node in self._below:
                self._drop_charge(self._charges[stretch])
                continue
            self._evicted_blocks += self._charges[stretch].blocks
            self.forget(node, stretch.start)
            if not node.holders:
                node.remove()

    def _are_one(self, above: Stretch, below: Stretch) -> bool:
        return super()._are_one(above, below) and self._charges[above].flow is self._charges[below].flow

    def _divided(self, stretch: Stretch, below: Stretch) -> None:
        """Charge both parts to the flow that the whole was charged to."""
        whole, charge = self._charges[stretch], Charge(below, self.held_of_stretch(below))
        self._charges[below] = charge
        self._recharge(stretch)
        if whole.flow is not None:
            whole.flow.add(charge, whole.older)

    def _vanished(self, stretch: Stretch) -> None:
        self._drop_charge(self._charges.pop(stretch))
        if not stretch.start:
            self._count_below(stretch.node, -1)

    def _unite(self, above: Stretch, below: Stretch, deeper: Stretch | None) -> None:
        super()._unite(above, below, deeper)
        self._recharge(above)

    def _settle(self, stretch: Stretch) -> None:
        super()._settle(stretch)
        if stretch.tiers:
            self._recharge(stretch)
        else:
            self._vanished(stretch)

    def _recharge_last(self, tier: int) -> None:
        last = self.cuts[tier].last
        if last is not self._end:
            self._recharge(last)

    def _recharge(self, stretch: Stretch) -> None:
        charge, blocks = self._charges[stretch], self.held_of_stretch(stretch)
        if charge.flow is not None:
            charge.flow.blocks += blocks - charge.blocks
        charge.blocks = blocks

    def _drop_charge(self, charge: Charge) -> None:
        flow = charge.flow
        if flow is not None:
            flow.drop(charge)
            if flow.is_empty:
                del self._flows[flow.name]
                flow.dissolve()

    def _count_below(self, node: Node, change: int) -> None:
        parent = node.parent
        if parent is not None:
            count = self._below.get(parent, 0) + change
            if count:
                self._below[parent] = count
            else:
                del self._below[parent]
