"""Join runs that were split because a prompt branched off there, once no prompt does.

A run and its only child become one run. What an endpoint holds of either stays as it is: what it used at different
times are different stretches of the joined run. So joining changes no eviction to come. Runs are examined when they are
used together, and only on long paths: a place where prompts branch off again and again is not worth joining. Each
decision examines a few runs; the next decision begins at another one.
"""

from __future__ import annotations

from collections.abc import Mapping

from scorers.base import Slot
from scorers.index.holders import slots_of
from scorers.index.identity import DIGEST_BYTES
from scorers.index.recency import Recency
from scorers.index.tree import Node

MOST_RUNS = 16
"""Paths of up to this many runs are left as they are. Each run costs a decision 3 µs."""
FEW_PARTIAL = 8
"""A prompt that ends within a run splits it if more holders (one for each tier of each endpoint) than this hold only a
part of it, which costs each match as much as another run, and if the path has fewer than ``MOST_RUNS`` runs."""
MOST_HOLDERS = 256
"""Holders of the runs joined in one decision, 2 µs each. At least one pair of runs is joined."""
VERY_LONG = 4
"""A path is very long if it has more than this many times ``MOST_RUNS`` runs."""
MOST_PARTIAL = 64
"""On a very long path, the most holders (one for each tier of each endpoint) that hold of two runs that are joined only
the first. What an endpoint holds of a part of a run costs each match 0.3 µs; what it holds of a whole run, almost
nothing."""
MOST_CHILDREN = 64
"""The most children of a run that is joined to the one before it, since each child's parent link must be changed."""


def join_along(path: list[Node], endpoints: Mapping[Slot, Recency], tiers: int, turn: int, most_runs: int) -> None:
    """Join what can be joined of ``path``, which was just used, beginning at the run that ``turn`` selects."""
    left, gone = MOST_HOLDERS, set[Node]()
    most_partial = MOST_PARTIAL if len(path) > VERY_LONG * most_runs else 0
    first = turn % len(path)
    for place in (*range(first, len(path) - 1), *range(min(first, len(path) - 1))):
        upper = path[place]
        if upper in gone:
            continue
        for lower in path[place + 1 :]:
            if lower in gone:  # already joined to the run before it
                continue
            if left <= 0 or not _may_join(upper, lower, most_partial):
                break
            slots = slots_of(upper.holders, tiers)
            left -= len(slots)
            for slot in slots:
                endpoints[slot].join(upper, lower)
            upper.join(lower)
            upper.full, upper.partial = lower.full, upper.holders & ~lower.full
            gone.add(lower)
        if left <= 0:
            break
    if gone:
        path[:] = [node for node in path if node not in gone]


def _may_join(upper: Node, lower: Node, most_partial: int) -> bool:
    return (
        upper.children is not None
        and len(upper.children) == 1
        and lower.digests[:DIGEST_BYTES] in upper.children
        and (upper.full & ~lower.holders).bit_count() <= most_partial
        and (lower.children is None or len(lower.children) <= MOST_CHILDREN)
    )
