"""A recorded prompt as its runs from the root down: how much of it a tier holds, and its use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from scorers.index.identity import DIGEST_BYTES
from scorers.index.recency import Recency
from scorers.index.stretch import Cut
from scorers.index.tree import Node


class Gate(Protocol):
    """Decides what enters a gated tier."""

    @property
    def chunk_blocks(self) -> int:
        """Number of blocks that enter the tier together."""

    def admit(self, chunks: Sequence[bytes]) -> int:
        """Return how many of ``chunks`` enter, counted from the first.

        ``chunks`` are the digests of a prompt's chunks that the tier does not hold yet.
        """


NO_GATES: Mapping[int, Gate] = MappingProxyType({})


def depth_in(path: Sequence[Node], recency: Recency, cut: Cut) -> int:
    """Return how many blocks of the path a tier holds."""
    depth = 0
    for node in path:
        if not node.full & cut.bit:
            return depth + recency.kept_of(node, cut)
        depth += node.blocks
    return depth


def admitted_to(path: Sequence[Node], blocks: int, recency: Recency, cut: Cut, gate: Gate) -> int:
    """Return how many of the first ``blocks`` of the path a tier holds after its gate has decided."""
    held, step = min(blocks, depth_in(path, recency, cut)), gate.chunk_blocks
    every = b"".join([node.digests for node in path])[: blocks * DIGEST_BYTES]
    whole = held // step * step
    ends = range((whole + step) * DIGEST_BYTES, len(every) + 1, step * DIGEST_BYTES)
    return max(held, whole + gate.admit([every[end - DIGEST_BYTES : end] for end in ends]) * step)


def use_admitted(path: Sequence[Node], blocks: int, recency: Recency, now: float, gates: Mapping[int, Gate]) -> None:
    """Use the first ``blocks`` of the path, in the gated tiers only as far as their ``gates`` admit them."""
    limits = {tier: admitted_to(path, blocks, recency, recency.cuts[tier], gate) for tier, gate in gates.items()}
    use(path, blocks, recency, now, limits)


def use(path: Sequence[Node], blocks: int, recency: Recency, now: float, limits: Mapping[int, int]) -> None:
    """Use the first ``blocks`` of the path, which end in its last run, in all tiers.

    In the tiers that have a limit, at most ``limits[tier]`` blocks are used. A limit is never below what the tier
    already holds of those blocks. New runs that no tier takes are removed from the tree.
    """
    end = sum([node.blocks for node in path])
    for node in reversed(path):
        begin = end - node.blocks
        reach = min(end, blocks)
        for until in sorted({reach, *[limit for limit in limits.values() if begin < limit < reach]}, reverse=True):
            but = sum([1 << tier for tier, limit in limits.items() if limit < until])
            if but != recency.every_tier:
                recency.use(node, now, but, until - begin)
        if not node.holders:
            node.remove()
        end = begin
