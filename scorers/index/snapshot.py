"""An index's contents as plain data, and how to restore an endpoint's part of it into an index with the same secret.

An endpoint's runs are saved newest first, with how many blocks of them each tier holds; its recency follows from that.
Using the runs again from the oldest to the newest gives the same order, and trimming to the same size leaves each tier
with the same runs. What was learned meanwhile is newer than what is restored.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, isfinite
from typing import NamedTuple

import msgspec

from scorers.base import Slot
from scorers.index.identity import DIGEST_BYTES, SECRET_BYTES
from scorers.index.index import PrefixIndex
from scorers.index.recency import Recency
from scorers.index.tree import Node

ROOT = -1
NO_FLOW = -1


class SavedRuns(msgspec.Struct, array_like=True, frozen=True):
    """What one endpoint holds, as saved."""

    used: tuple[int, ...]
    """Number of blocks held in each tier."""
    runs: list[int]
    """The runs, newest first, as positions in ``Snapshot.digests``."""
    flows: list[int] = []
    """The flow that each run is charged to: positions in ``Snapshot.flows``, or -1 for none; empty if flows are not
    bounded."""
    ages_s: list[float] = []
    """How long before the snapshot each run was last used; empty if not saved, which counts as 0."""
    gated: int = 0
    """The gated tiers, one bit for each."""
    held: list[int] = []
    """For each run, the gated tiers that hold at least some of it; empty if no tier is gated."""


class Snapshot(msgspec.Struct, array_like=True, frozen=True):
    """An index at one moment. It contains the secret, so its owner can find out whether a given prompt was seen."""

    secret: bytes
    block_tokens: int
    tiers: int
    parents: list[int]
    """By run: the position of the run before it, always a smaller number, or ``ROOT``."""
    digests: list[bytes]
    """By run: the joined digests of its blocks, ``Node.digests``."""
    flows: list[str]
    endpoints: dict[str, SavedRuns]
    """The endpoints' runs by address."""

    @property
    def blocks(self) -> int:
        """Number of (block, endpoint) pairs: what is held in any tier."""
        return sum([max(saved.used) for saved in self.endpoints.values()])


def faults(snapshot: Snapshot) -> Iterator[str]:
    """Yield each reason why ``taken`` cannot have made ``snapshot``; nothing if it is safe to restore."""
    runs = len(snapshot.parents)
    if len(snapshot.secret) != SECRET_BYTES or snapshot.block_tokens < 1 or snapshot.tiers < 1:
        yield "its head makes no sense"
    if len(snapshot.digests) != runs or any(not d or len(d) % DIGEST_BYTES for d in snapshot.digests):
        yield "its runs' digests make no sense"
    elif any(not ROOT <= parent < place for place, parent in enumerate(snapshot.parents)):
        yield "a run comes before what it follows"
    else:
        for saved in snapshot.endpoints.values():
            yield from _faults_of(saved, snapshot)


def _faults_of(saved: SavedRuns, snapshot: Snapshot) -> Iterator[str]:
    seen = {ROOT}
    for place in saved.runs:
        if not 0 <= place < len(snapshot.parents) or place in seen or snapshot.parents[place] not in seen:
            yield "an endpoint's runs are in no order of use"
            return
        seen.add(place)
    begins = {(snapshot.parents[place], snapshot.digests[place][:DIGEST_BYTES]) for place in saved.runs}
    if len(begins) < len(saved.runs):
        yield "two of an endpoint's runs begin alike"
    blocks = sum([len(snapshot.digests[place]) for place in saved.runs]) // DIGEST_BYTES
    if len(saved.used) != snapshot.tiers or any(not 0 <= used <= blocks for used in saved.used):
        yield "an endpoint holds more than it has runs"
    if saved.flows and len(saved.flows) != len(saved.runs):
        yield "an endpoint's runs and flows do not match"
    if any(not NO_FLOW <= flow < len(snapshot.flows) for flow in saved.flows):
        yield "a flow has no name"
    if saved.ages_s and (len(saved.ages_s) != len(saved.runs) or not all(isfinite(age) for age in saved.ages_s)):
        yield "an endpoint's runs and ages do not match"
    if len(saved.held) != (len(saved.runs) if saved.gated else 0) or not 0 <= saved.gated < 1 << snapshot.tiers:
        yield "an endpoint's runs and tiers do not match"
    elif any(held & ~saved.gated for held in saved.held):
        yield "a tier that is not gated is told apart"
    elif saved.gated:
        yield from _faults_of_gated(saved, snapshot)


def _faults_of_gated(saved: SavedRuns, snapshot: Snapshot) -> Iterator[str]:
    """Yield a fault if what a gated tier holds is not a prefix."""
    held = dict(zip(saved.runs, saved.held, strict=True)) | {ROOT: saved.gated}
    if any(tiers & ~held[snapshot.parents[place]] for place, tiers in held.items() if place != ROOT):
        yield "a run is held without what comes before it"


def restore(index: PrefixIndex, slot: Slot, snapshot: Snapshot, address: str, taken_s: float = 0.0) -> int:
    """Restore into ``slot`` what the endpoint at ``address`` held, and return how many blocks it then holds.

    What exceeds the slot's capacities is left out. ``snapshot`` must be without faults, and was taken at ``taken_s``. A
    tier that is gated in only one of snapshot and index begins empty.

    Raises: ValueError for another secret, or other tiers or blocks; nothing has changed then.
    """
    if (snapshot.secret, snapshot.tiers, snapshot.block_tokens) != (index.secret, index.tiers, index.block_tokens):
        raise ValueError("the snapshot is of an index with another secret, other tiers or other blocks")
    saved, recency = snapshot.endpoints[address], index.recency(slot)
    if recency is None:
        return 0
    index.generation += 1
    uses = list(_uses(index, saved, snapshot, taken_s))
    newer = [
        _Use([stretch.node], stretch.end, recency.flow_of(stretch), stretch.used_s, stretch.tiers)
        for stretch in recency
    ]
    changed = saved.gated ^ recency.gated
    limits = [
        cut.used + (0 if cut.mark & changed else used) for used, cut in zip(saved.used, recency.cuts, strict=True)
    ]
    at = -inf  # times must not decrease, whatever the snapshot contains
    for use in reversed(uses):
        at = max(at, use.used_s)
        _use_run(recency, use, at, recency.gated & (~use.tiers | changed))
    for use in reversed(newer):
        at = max(at, use.used_s)
        _use_run(recency, use, at, recency.gated & ~use.tiers)
    _trim(recency, limits)
    return recency.used


class _Use(NamedTuple):
    """One use to repeat: a saved run, or a stretch that the endpoint already holds."""

    path: list[Node]
    """The run as it is in the tree now, perhaps split into several."""
    end: int
    """How many blocks of the path's last run are used."""
    flow: str | None
    used_s: float
    tiers: int
    """The gated tiers that hold the run."""


def _uses(index: PrefixIndex, saved: SavedRuns, snapshot: Snapshot, taken_s: float) -> Iterator[_Use]:
    """Yield the saved runs, newest first; all of them are in the tree."""
    ends: dict[int, Node] = {ROOT: index.root}
    for position, place in enumerate(saved.runs):
        path = _planted(index, ends[snapshot.parents[place]], snapshot.digests[place])
        ends[place] = path[-1]
        flow = saved.flows[position] if saved.flows else NO_FLOW
        yield _Use(
            path,
            path[-1].blocks,
            None if flow == NO_FLOW else snapshot.flows[flow],
            taken_s - (saved.ages_s[position] if saved.ages_s else 0.0),
            saved.held[position] if saved.gated else 0,
        )


def _planted(index: PrefixIndex, node: Node, digests: bytes) -> list[Node]:
    """Return the runs below ``node`` that make up ``digests``; runs are split and created as needed."""
    path: list[Node] = []
    while digests:
        child = (node.children or {}).get(digests[:DIGEST_BYTES])
        if child is None:
            child = Node(node, digests)
            node.adopt(child)
        known = _common_blocks(child.digests, digests)
        if known < child.blocks:
            child = index.split(child, known)
        path.append(child)
        node, digests = child, digests[known * DIGEST_BYTES :]
    return path


def _common_blocks(one: bytes, other: bytes) -> int:
    """Return how many digests two runs with the same first digest have in common."""
    if one == other:
        return len(one) // DIGEST_BYTES
    low, high = 1, min(len(one), len(other)) // DIGEST_BYTES  # a digest covers everything before it, too
    while low < high:
        middle = (low + high + 1) // 2
        at = (middle - 1) * DIGEST_BYTES
        if one[at : at + DIGEST_BYTES] == other[at : at + DIGEST_BYTES]:
            low = middle
        else:
            high = middle - 1
    return low


def _use_run(recency: Recency, use: _Use, at: float, but: int) -> None:
    """Use a run in all tiers, except those of ``but`` that do not hold it already."""
    for position, node in enumerate(reversed(use.path)):
        end = node.blocks if position else use.end
        missing = sum([cut.mark for cut in recency.cuts if cut.mark & but and recency.kept_of(node, cut) < end])
        if missing != recency.every_tier:
            recency.use_for(node, use.flow, at, missing, end)
        elif not node.holders:  # it was created here, and no tier takes it
            node.remove()


def _trim(recency: Recency, limits: list[int]) -> None:
    """Trim to what was held, which may be less than there is room for, then restore the capacities."""
    capacities = [cut.capacity for cut in recency.cuts]
    for cut, limit in zip(recency.cuts, limits, strict=True):
        cut.capacity = min(cut.capacity, limit)
    recency.trim()
    for cut, capacity in zip(recency.cuts, capacities, strict=True):
        cut.capacity = capacity
    recency.trim_flows()
