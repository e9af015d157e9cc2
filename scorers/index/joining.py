"""Join runs that were cut in two by prompts which ended or branched off there, once nothing keeps them apart.

A run and its only child are one where everybody who holds them holds both and used them together last: equally old,
and next to each other in the order. Only then is it the same whether they are one or two, for every eviction to come.
An endpoint that used the beginning alone keeps them apart until it uses the whole again, or loses it. So runs are
looked at when they are used together, and only on long paths: a place where prompts end again and again is not worth
joining. A decision looks at a few; the next one begins elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping

from scorers.base import Slot
from scorers.index.holders import slots_of
from scorers.index.identity import DIGEST_BYTES
from scorers.index.recency import Recency
from scorers.index.tree import Node

MOST_RUNS = 16
"""Of a path that is left as it is: each costs a decision 3 µs."""
MOST_HOLDERS = 256
"""Asked in one decision, 0.5 µs each, 2 where two runs are joined; at least one pair of runs is looked at."""
MOST_CHILDREN = 64
"""Of a run that is joined to the one before it: each is told of its new parent."""


def join_along(path: list[Node], endpoints: Mapping[Slot, Recency], tiers: int, turn: int) -> None:
    """Join what can be joined of ``path``, which was just used, from the run on whose ``turn`` it is."""
    left, gone = MOST_HOLDERS, set[Node]()
    first = turn % len(path)
    for place in (*range(first, len(path) - 1), *range(min(first, len(path) - 1))):
        upper = path[place]
        if upper in gone:
            continue
        for lower in path[place + 1 :]:
            if lower in gone:  # by the one before it, which has gone, too
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
