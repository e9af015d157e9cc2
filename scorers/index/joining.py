"""Join runs that were split because a prompt ended or branched off there, once nothing keeps them apart.

A run and its only child can be joined if every holder of either holds both and used them together last: they are
equally old, and next to each other in the order. Only then do one run and two behave the same in every eviction to
come. An endpoint that used the beginning alone keeps them apart until it uses the whole again, or loses it. So runs are
examined when they are used together, and only on long paths: a place where prompts end again and again is not worth
joining. Each decision examines a few runs; the next decision begins at another one.
"""

from __future__ import annotations

from collections.abc import Mapping

from scorers.base import Slot
from scorers.index.holders import slots_of
from scorers.index.identity import DIGEST_BYTES
from scorers.index.recency import Recency
from scorers.index.tree import Node

MOST_RUNS = 16
"""Paths of up to this many runs are left as they are: each run costs a decision 3 µs."""
MOST_HOLDERS = 256
"""Holders examined in one decision, 0.5 µs each, or 2 where two runs are joined. At least one pair of runs is
examined."""
MOST_CHILDREN = 64
"""The most children of a run that is joined to the one before it, since each child's parent link must be changed."""


def join_along(path: list[Node], endpoints: Mapping[Slot, Recency], tiers: int, turn: int) -> None:
    """Join what can be joined of ``path``, which was just used, beginning at the run that ``turn`` selects."""
    left, gone = MOST_HOLDERS, set[Node]()
    first = turn % len(path)
    for place in (*range(first, len(path) - 1), *range(min(first, len(path) - 1))):
        upper = path[place]
        if upper in gone:
            continue
        for lower in path[place + 1 :]:
            if lower in gone:  # already joined to the run before it
                continue
            if left <= 0 or not _may_join(upper, lower):
                break
            slots = slots_of(upper.full, tiers)
            left -= len(slots)
            recencies = [endpoints[slot] for slot in slots]
            if not all(recency.are_one(upper, lower) for recency in recencies):
                break
            for recency in recencies:
                recency.join(upper, lower)
            upper.join(lower)
            upper.full, upper.partial = lower.full, lower.partial
            gone.add(lower)
        if left <= 0:
            break
    if gone:
        path[:] = [node for node in path if node not in gone]


def _may_join(upper: Node, lower: Node) -> bool:
    return (
        upper.children is not None
        and len(upper.children) == 1
        and lower.digests[:DIGEST_BYTES] in upper.children
        and upper.full == lower.holders
        and not upper.partial
        and (lower.children is None or len(lower.children) <= MOST_CHILDREN)
    )
