"""What an index knows as plain data, and an endpoint's part of it put back into an index with the same secret.

An endpoint's runs are told newest first, with how many blocks of them each tier holds; from that its recency follows.
Used again from the oldest to the newest they are in the same order, and trimmed to the same size they are held by the
same tiers. What was learned meanwhile is newer than what is put back.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, isfinite
from typing import NamedTuple

import msgspec

from scorers.base import Slot
from scorers.index.flow_share import FlowRecency
from scorers.index.identity import DIGEST_BYTES, SECRET_BYTES
from scorers.index.index import PrefixIndex
from scorers.index.recency import Recency
from scorers.index.tree import Node

ROOT = -1
NOBODY = -1


class SavedRuns(msgspec.Struct, array_like=True, frozen=True):
    """What one endpoint holds."""

    used: tuple[int, ...]
    """Blocks in each tier."""
    runs: list[int]
    """Newest first: places in ``Snapshot.digests``."""
    flows: list[int] = []
    """Whose each of them is: places in ``Snapshot.flows``, or ``NOBODY``; empty where flows are not bounded."""
    ages_s: list[float] = []
    """How long before the snapshot each of them was last used; empty: not told, and taken for 0."""
    gated: int = 0
    """The tiers that did not admit everything, a bit for each."""
    held: list[int] = []
    """Which of those hold each of the runs, or some of it; empty where none is gated."""


class Snapshot(msgspec.Struct, array_like=True, frozen=True):
    """An index at one moment. Whoever has it can find out whether a prompt was seen: the secret is in it."""

    secret: bytes
    block_tokens: int
    tiers: int
    parents: list[int]
    """By run: the place of the one before it, always a smaller number, or ``ROOT``."""
    digests: list[bytes]
    """By run: ``Node.digests``."""
    flows: list[str]
    endpoints: dict[str, SavedRuns]
    """By address."""

    @property
    def blocks(self) -> int:
        """(block, endpoint) pairs: what is held in any tier."""
        return sum([max(saved.used) for saved in self.endpoints.values()])


def faults(snapshot: Snapshot) -> Iterator[str]:
    """Why ``snapshot`` is none that ``taken`` can have made; nothing for one that is safe to restore."""
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
    if any(not NOBODY <= flow < len(snapshot.flows) for flow in saved.flows):
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
    """What a tier holds is a prefix there, too."""
    held = dict(zip(saved.runs, saved.held, strict=True)) | {ROOT: saved.gated}
    if any(tiers & ~held[snapshot.parents[place]] for place, tiers in held.items() if place != ROOT):
        yield "a run is held without what comes before it"


def restore(index: PrefixIndex, slot: Slot, snapshot: Snapshot, address: str, taken_s: float = 0.0) -> int:
    """Let ``slot`` hold what the endpoint at ``address`` held, as far as its capacities allow; how many blocks it holds
    then. ``snapshot`` has no faults, its secret is the index's, and it was taken at ``taken_s``. A tier that is gated
    and was not, or was and is not, begins empty.

    Raises: ValueError for another secret, or other tiers or blocks; nothing has changed then.
    """
    if (snapshot.secret, snapshot.tiers, snapshot.block_tokens) != (index.secret, index.tiers, index.block_tokens):
        raise ValueError("the snapshot is of an index with another secret, other tiers or other blocks")
    saved, recency = snapshot.endpoints[address], index.recency(slot)
    if recency is None:
        return 0
    index.generation += 1
    base = slot * index.tiers
    uses = list(_uses(index, saved, snapshot, taken_s))
    newer = [_Use([node], _flow_of(recency, node), recency.used_s(node), node.holders) for node in recency]
    changed = saved.gated << base ^ recency.gated
    limits = [cut.used + (0 if cut.bit & changed else used) for used, cut in zip(saved.used, recency.cuts, strict=True)]
    at = -inf  # the order is one of times, whatever the snapshot says
    for use in reversed(uses):
        at = max(at, use.used_s)
        _use_run(recency, use, at, recency.gated & (~(use.holders << base) | changed))
    for use in reversed(newer):
        at = max(at, use.used_s)
        _use_run(recency, use, at, recency.gated & ~use.holders)
    _trim(recency, limits)
    return recency.used


class _Use(NamedTuple):
    """One saved run, or one that is known."""

    path: list[Node]
    """What it is now: several runs, perhaps."""
    flow: str | None
    used_s: float
    holders: int
    """The gated tiers that hold it."""


def _uses(index: PrefixIndex, saved: SavedRuns, snapshot: Snapshot, taken_s: float) -> Iterator[_Use]:
    """Newest first; all of them are in the tree."""
    ends: dict[int, Node] = {ROOT: index.root}
    for position, place in enumerate(saved.runs):
        path = _planted(index, ends[snapshot.parents[place]], snapshot.digests[place])
        ends[place] = path[-1]
        flow = saved.flows[position] if saved.flows else NOBODY
        yield _Use(
            path,
            None if flow == NOBODY else snapshot.flows[flow],
            taken_s - (saved.ages_s[position] if saved.ages_s else 0.0),
            saved.held[position] if saved.gated else 0,
        )


def _planted(index: PrefixIndex, node: Node, digests: bytes) -> list[Node]:
    """The runs below ``node`` that are ``digests``, cut and made where they are not."""
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
    """How many digests two runs that begin alike have in common."""
    if one == other:
        return len(one) // DIGEST_BYTES
    low, high = 1, min(len(one), len(other)) // DIGEST_BYTES  # a digest is of everything before it, too
    while low < high:
        middle = (low + high + 1) // 2
        at = (middle - 1) * DIGEST_BYTES
        if one[at : at + DIGEST_BYTES] == other[at : at + DIGEST_BYTES]:
            low = middle
        else:
            high = middle - 1
    return low


def _flow_of(recency: Recency, node: Node) -> str | None:
    return recency.flow_of(node) if isinstance(recency, FlowRecency) else None


def _use_run(recency: Recency, use: _Use, at: float, but: int) -> None:
    """In all tiers but those of ``but``, as far as these do not hold it already."""
    for node in reversed(use.path):
        missing = but & ~node.holders
        if missing == recency.whole:
            if not node.holders:  # it was planted, and no tier takes it
                node.remove()
        elif isinstance(recency, FlowRecency):
            recency.use_for(node, use.flow, at, missing)
        else:
            recency.use(node, at, missing)


def _trim(recency: Recency, limits: list[int]) -> None:
    """First to what was held, which may be less than there is room for, then to what there is room for."""
    capacities = [cut.capacity for cut in recency.cuts]
    for cut, limit in zip(recency.cuts, limits, strict=True):
        cut.capacity = min(cut.capacity, limit)
    recency.trim()
    for cut, capacity in zip(recency.cuts, capacities, strict=True):
        cut.capacity = capacity
    if isinstance(recency, FlowRecency):
        recency.set_bound(recency.bound)
