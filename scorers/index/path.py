"""A recorded prompt as its runs from the root down: how much of it a tier holds, and its use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from scorers.index.identity import DIGEST_BYTES
from scorers.index.recency import Cut, Recency
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


def depth_in(path: Sequence[Node], cut: Cut) -> int:
    """Return how many blocks of the path a tier holds."""
    depth = 0
    for node in path:
        if not node.full & cut.bit:
            return depth + (cut.kept if node.partial & cut.bit else 0)
        depth += node.blocks
    return depth


def admitted_to(path: Sequence[Node], cut: Cut, gate: Gate) -> int:
    """Return how many blocks of the path a tier holds after its gate has decided."""
    held, step = depth_in(path, cut), gate.chunk_blocks
    every = b"".join([node.digests for node in path])
    whole = held // step * step
    ends = range((whole + step) * DIGEST_BYTES, len(every) + 1, step * DIGEST_BYTES)
    return max(held, whole + gate.admit([every[end - DIGEST_BYTES : end] for end in ends]) * step)


def use(
    path: list[Node],
    recency: Recency,
    now: float,
    limits: Mapping[int, int],
    split: Callable[[Node, int], Node],
) -> None:
    """Use each run of the path in all tiers, with at most ``limits[tier]`` blocks in the tiers that have a limit.

    A limit is never below what the tier already holds of the path.
    """
    if not limits:
        for node in reversed(path):
            recency.use(node, now)
        return
    for blocks in limits.values():
        depth = 0
        for position, node in enumerate(path):
            if depth < blocks < depth + node.blocks:
                upper = split(node, blocks - depth)
                upper.adopt(node)  # the split removed it if it had no holder; it is used now
                path.insert(position, upper)
                break
            depth += node.blocks
    depth = sum([node.blocks for node in path])
    for node in reversed(path):
        but = sum([recency.cuts[tier].bit for tier, blocks in limits.items() if depth > blocks])
        depth -= node.blocks
        if but != recency.whole:
            recency.use(node, now, but)
        elif not node.holders:  # it is new, and no tier admits it
            node.remove()
