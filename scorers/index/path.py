"""A recorded prompt as its runs from the root down: how much of it a tier holds, and its use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from scorers.index.identity import DIGEST_BYTES
from scorers.index.recency import Cut, Recency
from scorers.index.tree import Node


class Gate(Protocol):
    """Says what enters a gated tier."""

    @property
    def chunk_blocks(self) -> int:
        """Blocks that enter together."""

    def admit(self, chunks: Sequence[bytes]) -> int:
        """How many of ``chunks`` enter, from the first on: those of a prompt that are not there, by their digests."""


NO_GATES: Mapping[int, Gate] = MappingProxyType({})


def depth_in(path: Sequence[Node], cut: Cut) -> int:
    """How many blocks of the path a tier holds."""
    depth = 0
    for node in path:
        if not node.full & cut.bit:
            return depth + (cut.kept if node.partial & cut.bit else 0)
        depth += node.blocks
    return depth


def admitted_to(path: Sequence[Node], cut: Cut, gate: Gate) -> int:
    """How many blocks of the path a tier holds once its gate has been asked."""
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
    """Use each run of the path; in the tiers of ``limits`` only so many blocks, of which all that they hold is part."""
    if not limits:
        for node in reversed(path):
            recency.use(node, now)
        return
    for blocks in limits.values():
        depth = 0
        for position, node in enumerate(path):
            if depth < blocks < depth + node.blocks:
                upper = split(node, blocks - depth)
                upper.adopt(node)  # it has left the tree where nobody held it, and is used now
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
