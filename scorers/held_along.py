"""How much of a walked prompt every endpoint holds, in every tier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from scorers.base import Slot
from scorers.holders import held_by_tier, slots_of
from scorers.recency import Recency
from scorers.tree import Walk


def held_along(
    walked: Walk, endpoints: Mapping[Slot, Recency], tiers: int, block_tokens: int
) -> tuple[dict[Slot, int], ...]:
    """By tier: how many tokens of the walk each endpoint holds.

    ``holding`` are those that hold everything so far; they drop out in groups.
    """
    runs = [(node, node.blocks) for node in walked.path]
    if walked.inside is not None:
        runs.append((walked.inside, walked.inside_blocks))
    groups: list[tuple[int, int]] = []
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
                groups += [
                    (bit, blocks * block_tokens) for bit, blocks in _held_within(within, endpoints, tiers, depth, known)
                ]
            if not holding:
                break
        depth += known
    groups.append((holding, depth * block_tokens))
    return held_by_tier(groups, tiers)


def _held_within(
    holders: int, endpoints: Mapping[Slot, Recency], tiers: int, depth: int, known: int
) -> Iterator[tuple[int, int]]:
    """Blocks of those whose tier ends within a run; the prompt has ``known`` of the run's."""
    for slot in slots_of(holders, tiers):
        for cut in endpoints[slot].cuts:
            if cut.bit & holders:
                yield cut.bit, depth + min(known, cut.kept)
