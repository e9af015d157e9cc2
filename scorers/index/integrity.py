"""The invariants of the index as code; tests check them after every step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from scorers.index.flow_share import FlowRecency
from scorers.index.identity import DIGEST_BYTES
from scorers.index.recency import Cut, Recency
from scorers.index.tree import Node


def check(root: Node, endpoints: Iterable[Recency]) -> None:
    """Check all invariants of the index.

    Raises: AssertionError naming the invariants that do not hold.
    """
    endpoints = list(endpoints)
    faults = list(violations(root, endpoints))
    for recency in endpoints:
        if isinstance(recency, FlowRecency):
            faults += recency.faults()
    if faults:
        raise AssertionError("; ".join(faults))


def violations(root: Node, endpoints: Iterable[Recency]) -> Iterator[str]:
    """Yield one sentence for each invariant that does not hold. The cost is quadratic in the size of the index."""
    endpoints = list(endpoints)
    runs = list(root.descendants())
    if root.holders or root.digests:
        yield "the root is no run, and holds nothing"
    everybody = sum([recency.whole for recency in endpoints])
    for node in runs:
        yield from _of_node(node, root, everybody)
    for recency in endpoints:
        if set(recency) != {node for node in runs if node.holders & recency.whole}:
            yield f"slot {recency.slot}: its entries are not the runs that it holds"
        yield from _of_order(recency)
        for tier, cut in enumerate(recency.cuts):
            admitted = [node for node in recency if not cut.bit & recency.gated or node.holders & cut.bit]
            yield from [f"slot {recency.slot}, tier {tier}: {fault}" for fault in _of_cut(cut, admitted)]


def _of_node(node: Node, root: Node, everybody: int) -> Iterator[str]:
    parent = node.parent
    if parent is None or (parent.children or {}).get(node.digests[:DIGEST_BYTES]) is not node:
        yield "a run that its parent does not know"
    elif parent is not root and node.holders & ~parent.full:
        yield "a run is held without what comes before it"
    if not node.blocks or node.blocks * DIGEST_BYTES != len(node.digests):
        yield "a run whose digests are not one to a block"
    if not node.holders:
        yield "a run that nobody holds"
    if node.full & node.partial:
        yield "a run that is held both whole and in part"
    if node.holders & ~everybody:
        yield "a run that is held by an endpoint that is gone"
    if node.children is not None and not node.children:
        yield "an empty table of children"


def _of_order(recency: Recency) -> Iterator[str]:
    place = {node: position for position, node in enumerate(recency)}
    if len(place) != len(recency):
        yield f"slot {recency.slot}: the order has {len(place)} runs, the table {len(recency)}"
    for node, position in place.items():
        if node.parent is not None and place.get(node.parent, -1) >= position:
            yield f"slot {recency.slot}: a run is newer than what comes before it"
    times = [recency.used_s(node) for node in place]
    if times != sorted(times, reverse=True):
        yield f"slot {recency.slot}: the order is not one of times"


def _of_cut(cut: Cut, runs: list[Node]) -> Iterator[str]:
    whole = [node for node in runs if node.full & cut.bit]
    partial = [node for node in runs if node.partial & cut.bit]
    if runs[: len(whole) + len(partial)] != whole + partial or len(partial) > 1:
        yield "what is held is not the newest"
    used = sum([node.blocks for node in whole])
    if partial:
        used += cut.kept
        if not 0 < cut.kept < partial[0].blocks:
            yield f"{cut.kept} blocks are kept of a run with {partial[0].blocks} that is held in part"
    elif whole and cut.kept != whole[-1].blocks:
        yield f"{cut.kept} blocks are kept of a run with {whole[-1].blocks} that is held whole"
    if (whole or partial) and cut.last.node is not (whole + partial)[-1]:
        yield "the last run is not the oldest that is held"
    if cut.used != used or used > cut.capacity:
        yield f"{cut.used} blocks are counted, {used} are held, {cut.capacity} have room"
