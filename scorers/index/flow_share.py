"""Bound what one flow's prompts occupy of an endpoint, so that nobody can fill it alone.

A flow is whoever sends the same fairness id. A run belongs to the flow that used it last, and so does everything before
it: what several flows begin with is charged to one of them at a time. A flow that holds more than the bound loses its
own least recent blocks, ends of prompts first. Where another flow's prompt goes on from such a block, it cannot be
evicted, since what is held is always a prefix: from then on it is nobody's, until it is used again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from scorers.base import Slot
from scorers.index.recency import Entry, Recency
from scorers.index.tree import Node


class Charge(msgspec.Struct, gc=False, eq=False):
    """What a run costs, and its place in the order of the flow that pays; nobody pays where ``flow`` is None."""

    node: Node | None
    blocks: int = 0
    """Held in any tier."""
    flow: Flow | None = None
    newer: Charge = None  # type: ignore[assignment]  # linked while a flow pays
    older: Charge = None  # type: ignore[assignment]


class Flow:
    """A flow's charges in the order of last use, as a ring that ``end`` closes: newer than it is the oldest."""

    __slots__ = ("blocks", "end", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.blocks = 0
        self.end = Charge(None)
        self.end.newer = self.end.older = self.end

    def __iter__(self) -> Iterator[Charge]:
        """Oldest first."""
        charge = self.end.newer
        while charge is not self.end:
            yield charge
            charge = charge.newer

    @property
    def is_empty(self) -> bool:
        """Whether it pays for nothing."""
        return self.end.newer is self.end

    def add(self, charge: Charge, older: Charge) -> None:
        """Pay for ``charge``, next newer than ``older``."""
        charge.flow = self
        charge.older, charge.newer = older, older.newer
        older.newer.older = charge
        older.newer = charge
        self.blocks += charge.blocks

    def drop(self, charge: Charge) -> None:
        """Pay for ``charge`` no more."""
        charge.newer.older = charge.older
        charge.older.newer = charge.newer
        charge.flow = None
        self.blocks -= charge.blocks

    def dissolve(self) -> None:
        """Cut the ring, which the garbage collector does not know."""
        charge = self.end.newer
        while charge is not self.end:
            following = charge.newer
            charge.flow = None
            del charge.newer, charge.older
            charge = following
        del self.end.newer, self.end.older


class FlowRecency(Recency):
    """Recency with a bound for each flow. O(1) for each run used, evicted or found to be nobody's.

    ``split_run`` is the index's: it cuts a run in two for everybody who holds it.

    Invariant: every entry has a charge of as many blocks as it holds; between calls no flow pays for more than
    ``bound``.
    """

    __slots__ = ("_below", "_charges", "_flows", "_split_run", "bound", "evicted_blocks", "flow")

    def __init__(self, slot: Slot, tiers: int, split_run: Callable[[Node, int], Node]) -> None:
        super().__init__(slot, tiers)
        self.bound = 0
        self.flow = ""
        """Who uses what is used next."""
        self.evicted_blocks = 0
        """For the bound's sake, so far."""
        self._split_run = split_run
        self._charges: dict[Node, Charge] = {}
        self._below: dict[Node, int] = {}  # entries right below a run, where there are any
        self._flows: dict[str, Flow] = {}

    def set_bound(self, blocks: int) -> None:
        """Let a flow hold that many at most; those that hold more lose the rest at once."""
        self.bound = blocks
        for name in sorted(self._flows):  # whose end goes first decides whose beginning is nobody's
            if name in self._flows:
                self._trim_flow(self._flows[name])

    def held_by(self, flow: str) -> int:
        """Blocks that ``flow`` pays for."""
        return self._flows[flow].blocks if flow in self._flows else 0

    def use(self, node: Node, now: float = 0.0, but: int = 0) -> None:
        """As in Recency; the current flow pays."""
        super().use(node, now, but)
        charge = self._charges.get(node)
        if charge is None:
            charge = self._charges[node] = Charge(node)
            self._count_below(node, 1)
        elif charge.flow is not None:
            self._drop(charge)
        charge.blocks = node.blocks
        flow = self._flows.get(self.flow)
        if flow is None:
            flow = self._flows[self.flow] = Flow(self.flow)
        flow.add(charge, flow.end.older)

    def use_for(self, node: Node, flow: str | None, now: float, but: int) -> None:
        """The same, and ``flow`` pays; nobody for None."""
        self.flow = flow or ""
        self.use(node, now, but)
        if flow is None:
            self._drop(self._charges[node])

    def flow_of(self, node: Node) -> str | None:
        """Who pays for a run that is held; None for nobody."""
        flow = self._charges[node].flow
        return None if flow is None else flow.name

    def forget(self, node: Node) -> None:
        """As in Recency."""
        super().forget(node)
        self._remove_charge(node)

    def trim(self) -> None:
        """As in Recency, the current flow's excess first."""
        flow = self._flows.get(self.flow)
        if flow is not None:
            self._trim_flow(flow)
        super().trim()
        for cut in self.cuts:
            if cut.last is not self._end:
                self._recharge(cut.last)

    def evict_unused(self, tier: int, until_s: float) -> None:
        """As in Recency."""
        super().evict_unused(tier, until_s)
        self._recharge_last(tier)

    def evict(self, tier: int, blocks: int) -> None:
        """As in Recency."""
        super().evict(tier, blocks)
        self._recharge_last(tier)

    def split(self, upper: Node, lower: Node) -> None:
        """As in Recency; both parts belong to the flow that the whole belonged to."""
        whole = self._charges[lower]
        charge = self._charges[upper] = Charge(upper)
        if whole.flow is not None:
            whole.flow.add(charge, whole)
        self._below[upper] = 1
        super().split(upper, lower)
        self._recharge(self._entries[upper])

    def are_one(self, upper: Node, lower: Node) -> bool:
        """As in Recency, and the same flow pays for both."""
        return super().are_one(upper, lower) and self._charges[upper].flow is self._charges[lower].flow

    def join(self, upper: Node, lower: Node) -> None:
        """As in Recency."""
        super().join(upper, lower)
        charge, taken = self._charges[upper], self._charges.pop(lower)
        charge.blocks += taken.blocks
        if taken.flow is not None:
            taken.flow.blocks += taken.blocks
            self._drop(taken)
        self._below.pop(upper)
        if lower in self._below:
            self._below[upper] = self._below.pop(lower)

    def dissolve(self) -> None:
        """As in Recency."""
        for _ in self._take_flows_apart():
            pass
        super().dissolve()

    def take_apart(self) -> Iterator[None]:
        """As in Recency."""
        yield from self._take_flows_apart()
        yield from super().take_apart()

    def faults(self) -> Iterator[str]:
        """One sentence for each invariant that does not hold."""
        place = {node: position for position, node in enumerate(self)}
        below: dict[Node, int] = {}
        for node in place:
            if node.parent is not None:
                below[node.parent] = below.get(node.parent, 0) + 1
        if below != self._below:
            yield f"slot {self.slot}: runs below others are counted wrongly"
        if set(self._charges) != set(place):
            yield f"slot {self.slot}: its charges are not of the runs that it holds"
        if any(charge.blocks != self.held_of(node) for node, charge in self._charges.items()):
            yield f"slot {self.slot}: a charge is not what its run holds"
        for name, flow in self._flows.items():
            charges = list(flow)
            order = [place[charge.node] for charge in charges if charge.node in place]
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
            node = charge.node
            if node is None:
                raise RuntimeError(f"flow {flow.name!r} is counted with {flow.blocks} blocks and holds none")
            if excess < charge.blocks:
                self._split_run(node, charge.blocks - excess)  # ``node`` is the lower part from here on
            if node in self._below:
                self._drop(charge)
                continue
            self.evicted_blocks += charge.blocks
            self.forget(node)
            if not node.holders:
                node.remove()

    def _discard_unheld(self, entry: Entry) -> None:
        super()._discard_unheld(entry)
        if entry.node in self._entries:
            self._recharge(entry)
        else:
            self._remove_charge(entry.node)

    def _recharge_last(self, tier: int) -> None:
        last = self.cuts[tier].last
        if last is not self._end:
            self._recharge(last)

    def _recharge(self, entry: Entry) -> None:
        charge, blocks = self._charges[entry.node], self.held_of(entry.node)
        if charge.flow is not None:
            charge.flow.blocks += blocks - charge.blocks
        charge.blocks = blocks

    def _remove_charge(self, node: Node) -> None:
        charge = self._charges.pop(node)
        if charge.flow is not None:
            self._drop(charge)
        self._count_below(node, -1)

    def _drop(self, charge: Charge) -> None:
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
