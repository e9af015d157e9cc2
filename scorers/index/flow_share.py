"""Limit how much of an endpoint one flow's prompts may occupy, so that no flow can fill it alone.

A flow is all requests with the same fairness id. A run is charged to the flow that used it last, and so is every run
before it: a beginning that several flows share is charged to one of them at a time. A flow that holds more than its
bound loses its own least recently used blocks, ends of prompts first. Where another flow's prompt continues from such a
block, the block cannot be evicted, since what is held is always a prefix. It is then charged to no flow until it is
used again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from scorers.base import Slot
from scorers.index.recency import Entry, Recency
from scorers.index.tree import Node


class Charge(msgspec.Struct, gc=False, eq=False):
    """What a run costs, and its place in the order of the flow that it is charged to; ``flow`` may be None."""

    node: Node | None
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
    """Recency with a bound for each flow. O(1) for each run that is used, evicted, or no longer charged.

    ``split_run`` is the index's method that splits a run for all of its holders.

    Invariant: every entry has a charge of as many blocks as it holds; between calls no flow is charged for more than
    ``bound``.
    """

    __slots__ = ("_below", "_charges", "_flows", "_split_run", "bound", "evicted_blocks", "flow")

    def __init__(self, slot: Slot, tiers: int, split_run: Callable[[Node, int], Node]) -> None:
        super().__init__(slot, tiers)
        self.bound = 0
        self.flow = ""
        """The flow that is charged for the next use."""
        self.evicted_blocks = 0
        """Blocks evicted so far because of the bound."""
        self._split_run = split_run
        self._charges: dict[Node, Charge] = {}
        self._below: dict[Node, int] = {}  # entries right below a run; absent if there are none
        self._flows: dict[str, Flow] = {}

    def set_bound(self, blocks: int) -> None:
        """Set how many ``blocks`` a flow may hold; flows that hold more lose the rest at once."""
        self.bound = blocks
        for name in sorted(self._flows):  # the order decides which shared beginnings are charged to no flow
            if name in self._flows:
                self._trim_flow(self._flows[name])

    def held_by(self, flow: str) -> int:
        """Return how many blocks are charged to ``flow``."""
        return self._flows[flow].blocks if flow in self._flows else 0

    def use(self, node: Node, now: float = 0.0, but: int = 0) -> None:
        """Extend ``Recency.use``: charge the run to the current flow."""
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
        """Use ``node`` as ``use`` does, and charge it to ``flow``; for None, charge it to no flow."""
        self.flow = flow or ""
        self.use(node, now, but)
        if flow is None:
            self._drop(self._charges[node])

    def flow_of(self, node: Node) -> str | None:
        """Return the flow that a held run is charged to; None if it is charged to none."""
        flow = self._charges[node].flow
        return None if flow is None else flow.name

    def forget(self, node: Node) -> None:
        """Extend ``Recency.forget``: remove the charge."""
        super().forget(node)
        self._remove_charge(node)

    def trim(self) -> None:
        """Extend ``Recency.trim``: evict the current flow's excess first."""
        flow = self._flows.get(self.flow)
        if flow is not None:
            self._trim_flow(flow)
        super().trim()
        for cut in self.cuts:
            if cut.last is not self._end:
                self._recharge(cut.last)

    def evict_unused(self, tier: int, until_s: float) -> None:
        """Extend ``Recency.evict_unused``: adjust the charge of the tier's last run."""
        super().evict_unused(tier, until_s)
        self._recharge_last(tier)

    def evict(self, tier: int, blocks: int) -> None:
        """Extend ``Recency.evict``: adjust the charge of the tier's last run."""
        super().evict(tier, blocks)
        self._recharge_last(tier)

    def split(self, upper: Node, lower: Node) -> None:
        """Extend ``Recency.split``: charge both parts to the flow that the whole was charged to."""
        whole = self._charges[lower]
        charge = self._charges[upper] = Charge(upper)
        if whole.flow is not None:
            whole.flow.add(charge, whole)
        self._below[upper] = 1
        super().split(upper, lower)
        self._recharge(self._entries[upper])

    def are_one(self, upper: Node, lower: Node) -> bool:
        """Extend ``Recency.are_one``: both runs must be charged to the same flow."""
        return super().are_one(upper, lower) and self._charges[upper].flow is self._charges[lower].flow

    def join(self, upper: Node, lower: Node) -> None:
        """Extend ``Recency.join``: move the charge of ``lower`` to ``upper``."""
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
