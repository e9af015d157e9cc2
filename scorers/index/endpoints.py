"""What all endpoints hold: the recency of each, and the sums over all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scorers.base import Slot
from scorers.index.flow_share import FlowRecency
from scorers.index.holders import slots_of
from scorers.index.match import Statistics
from scorers.index.recency import Recency
from scorers.index.tree import Node


class Endpoints(dict[Slot, Recency]):
    """The recency of each endpoint that has a capacity.

    ``flow_shares`` is, for each tier, the share of it that one flow may hold; empty means no bound.
    """

    def __init__(self, tiers: int, flow_shares: Sequence[float]) -> None:
        super().__init__()
        self.tiers = tiers
        self.flow_shares = tuple(flow_shares)
        self._over_share = 0  # blocks, of endpoints that were removed

    def added(self, slot: Slot) -> Recency:
        """Return the recency of ``slot``, which is created if it is new."""
        recency = self.get(slot)
        if recency is None:
            recency = self[slot] = (FlowRecency if self.flow_shares else Recency)(slot, self.tiers)
        return recency

    def remove(self, slot: Slot) -> bool:
        """Remove ``slot`` and everything that it holds. False if it is unknown."""
        recency = self.pop(slot, None)
        if recency is None:
            return False
        self._over_share += recency.evicted_blocks
        recency.dissolve()
        return True

    def emptied(self) -> Endpoints:
        """Return an empty table with the same flow shares, and the same count of what flows lost."""
        empty = Endpoints(self.tiers, self.flow_shares)
        empty._over_share = self._over_share
        return empty

    def bound_flows(self, recency: Recency) -> None:
        """Apply the flow shares to the capacities that ``recency`` has now."""
        if recency.bounds_flows:
            tiers = zip(recency.cuts, self.flow_shares, strict=True)
            recency.set_bound(max([int(round(cut.capacity * share, 6)) for cut, share in tiers]))

    def kept_of(self, node: Node, holders: int) -> Iterator[tuple[int, int]]:
        """Yield each of ``holders``, which hold a part of ``node``, and how many blocks it has."""
        for slot in slots_of(holders, self.tiers):
            recency = self[slot]
            for cut in recency.cuts:
                if cut.bit & holders:
                    yield cut.bit, recency.kept_of(node, cut)

    def split(self, node: Node, blocks: int) -> Node:
        """Split a run after its first ``blocks``, for all of its holders; return the new run before it."""
        upper = node.split(blocks)
        for slot in slots_of(node.holders, self.tiers):
            self[slot].split(upper, node)
        return upper

    @property
    def over_share_blocks(self) -> int:
        """Blocks evicted so far because a flow held more than its share."""
        return self._over_share + sum([recency.evicted_blocks for recency in self.values()])

    def statistics(self, block_tokens: int) -> Statistics:
        """Return sums over all endpoints, for blocks of ``block_tokens``."""
        every = self.values()
        return Statistics(
            endpoints=len(self),
            blocks=sum([recency.used for recency in every]),
            runs=sum([len(recency) for recency in every]),
            tokens_by_tier=tuple(
                [sum([recency.cuts[tier].used for recency in every]) * block_tokens for tier in range(self.tiers)]
            ),
        )
