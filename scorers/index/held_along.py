"""How much of a walked prompt each endpoint holds, in every tier."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from scorers.base import Slot
from scorers.index.holders import held_by_tier
from scorers.index.tree import Node, Walk

Parts: TypeAlias = Callable[[Node, int], Iterable[tuple[int, int]]]
"""For those of the given holders (a bit mask) that have only the first blocks of a run: each one's bit, and how many
blocks it has."""


def held_along(walked: Walk, parts: Parts, tiers: int, block_tokens: int) -> tuple[dict[Slot, int], ...]:
    """Return, by tier, how many tokens of the walk each holder has; endpoints that hold none are absent.

    ``holding`` are the holders that hold everything so far; they drop out in groups.
    """
    runs = [(node, node.blocks) for node in walked.path]
    if walked.inside is not None:
        runs.append((walked.inside, walked.inside_blocks))
    groups: list[tuple[int, int]] = []
    single: list[tuple[int, int]] = []
    holding = runs[0][0].holders if runs else 0
    depth = 0
    for node, known in runs:
        lost = holding & ~node.full
        if lost:
            holding ^= lost
            within = lost & node.partial
            if lost != within:
                groups.append((lost ^ within, depth * block_tokens))
            if within:
                single += [(bit, (depth + min(known, kept)) * block_tokens) for bit, kept in parts(node, within)]
            if not holding:
                break
        depth += known
    groups.append((holding, depth * block_tokens))
    return held_by_tier(groups, single, tiers)
