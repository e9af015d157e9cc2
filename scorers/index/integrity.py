"""The invariants of the index as code; tests check them after every step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from scorers.index.identity import DIGEST_BYTES
from scorers.index.recency import Recency
from scorers.index.stretch import Cut, Stretch
from scorers.index.tree import Node


def check(root: Node, endpoints: Iterable[Recency]) -> None:
    """Check all invariants of the index.

    Raises: AssertionError naming the invariants that do not hold.
    """
    endpoints = list(endpoints)
    faults = list(violations(root, endpoints))
    for recency in endpoints:
        faults += recency.faults()
    if faults:
        raise AssertionError("; ".join(faults))


def violations(root: Node, endpoints: Iterable[Recency]) -> Iterator[str]:
    """Yield one sentence for each invariant that does not hold. The cost is quadratic in the size of the index."""
    endpoints = list(endpoints)
    runs = list(root.descendants())
    if root.holders or root.digests:
        yield "the root is no run, and holds nothing"
    every_bit = sum([recency.whole for recency in endpoints])
    for node in runs:
        yield from _of_node(node, root, every_bit)
    for recency in endpoints:
        held = {node for node in runs if node.holders & recency.whole}
        if {stretch.node for stretch in recency} != held or any(node not in recency for node in held):
            yield f"slot {recency.slot}: its stretches are not those of the runs that it holds"
            continue
        yield from _of_order(recency)
        for node in held:
            yield from _of_stretches(node, recency)
        for tier, cut in enumerate(recency.cuts):
            admitted = [stretch for stretch in recency if not cut.mark & recency.gated or stretch.tiers & cut.mark]
            yield from [f"slot {recency.slot}, tier {tier}: {fault}" for fault in _of_cut(cut, admitted)]


def _of_node(node: Node, root: Node, every_bit: int) -> Iterator[str]:
    parent = node.parent
    if parent is None or (parent.children or {}).get(node.digests[:DIGEST_BYTES]) is not node:
        yield "a run that its parent does not know"
    elif parent is not root and node.holders & ~parent.full:
        yield "a run is held without what comes before it"
    if not node.blocks or node.blocks * DIGEST_BYTES != len(node.digests):
        yield "a run whose digests are not one to a block"
    if not node.holders:
        yield "a run that has no holder"
    if node.full & node.partial:
        yield "a run that is held both whole and in part"
    if node.holders & ~every_bit:
        yield "a run that is held by an endpoint that is gone"
    if node.children is not None and not node.children:
        yield "an empty table of children"


def _of_order(recency: Recency) -> Iterator[str]:
    place: dict[Node, int] = {}
    for position, stretch in enumerate(recency):
        place.setdefault(stretch.node, position)
    if len(place) != len(recency):
        yield f"slot {recency.slot}: the order has {len(place)} runs, the table {len(recency)}"
    for node, position in place.items():
        above = node.parent
        if above is not None and above.parent is not None:
            last = next(recency.stretches_of(above), None) if above in recency else None
            if last is None or list(recency).index(last) >= position:
                yield f"slot {recency.slot}: a run is newer than what comes before it"
    times = [stretch.used_s for stretch in recency]
    if times != sorted(times, reverse=True):
        yield f"slot {recency.slot}: the order is not one of times"


def _of_stretches(node: Node, recency: Recency) -> Iterator[str]:
    stretches = [*recency.stretches_of(node)][::-1]
    ordered = [stretch for stretch in recency if stretch.node is node]
    if stretches != ordered:
        yield f"slot {recency.slot}: the stretches of a run are not in the order of use"
    end = 0
    for stretch in stretches:
        if stretch.start != end or stretch.blocks < 1 or not stretch.tiers:
            yield f"slot {recency.slot}: the stretches of a run do not follow each other"
        end = stretch.end
    if end > node.blocks:
        yield f"slot {recency.slot}: the stretches of a run are longer than the run"
    for cut in recency.cuts:
        held = sum([cut.kept_of(stretch) for stretch in stretches])
        bits = (bool(node.full & cut.bit), bool(node.partial & cut.bit))
        if bits != (held == node.blocks, 0 < held < node.blocks) or held != recency.kept_of(node, cut):
            yield f"slot {recency.slot}: a run's bits are not what is held of it"


def _of_cut(cut: Cut, stretches: list[Stretch]) -> Iterator[str]:
    held = [cut.kept_of(stretch) for stretch in stretches]
    some = [stretch for stretch, kept in zip(stretches, held, strict=True) if kept]
    if stretches[: len(some)] != some:
        yield "what is held is not the newest"
    if some and (cut.last is not some[-1] or not 0 < cut.kept <= cut.last.blocks):
        yield "the last stretch is not the oldest that is held"
    if cut.used != sum(held) or cut.used > cut.capacity:
        yield f"{cut.used} blocks are counted, {sum(held)} are held, {cut.capacity} have room"
