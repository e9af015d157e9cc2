"""The yardstick of the index benchmarks: one entry for each (block, endpoint, tier), as routers commonly keep them.

Every block's hash is seeded with the one before; each tier has a table from hash to the set of its holders, and an LRU
of hashes for each endpoint. Written as lean as that design allows in Python.
"""

from __future__ import annotations

from collections import OrderedDict

from xxhash import xxh3_64_intdigest

from scorers.base import Prompt, Slot


class FlatTier:
    """One tier of all endpoints. Units: blocks."""

    def __init__(self, endpoints: int, capacity: int) -> None:
        self.holders: dict[int, set[Slot]] = {}
        self.recent: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(endpoints)]
        self.capacity = capacity

    def match(self, hashes: list[int]) -> dict[Slot, int]:
        depths: dict[Slot, int] = {}
        holding: set[Slot] | None = None
        for depth, name in enumerate(hashes):
            here = self.holders.get(name, set())
            still = here if holding is None else holding & here
            for slot in (holding or set()) - still:
                depths[slot] = depth
            holding = still
            if not holding:
                break
        depths.update(dict.fromkeys(holding or (), len(hashes)))
        return depths

    def record(self, hashes: list[int], slot: Slot) -> None:
        recent = self.recent[slot]
        for name in reversed(hashes):
            recent[name] = None
            recent.move_to_end(name)
            self.holders.setdefault(name, set()).add(slot)
        while len(recent) > self.capacity:
            gone, _ = recent.popitem(last=False)
            self.holders[gone].discard(slot)
            if not self.holders[gone]:
                del self.holders[gone]


class FlatIndex:
    """Several tiers, one hash pass."""

    def __init__(self, endpoints: int, capacities_tokens: list[int], block_tokens: int = 64) -> None:
        self.step = block_tokens * 4
        self.tiers = [FlatTier(endpoints, tokens // block_tokens) for tokens in capacities_tokens]

    def decide(self, prompt: Prompt, slot: Slot) -> None:
        """Match, then record at ``slot``."""
        view, name, hashes = memoryview(prompt.data), hash(prompt.identity) & 0xFFFFFFFF, []
        for at in range(0, len(view) - self.step + 1, self.step):
            name = xxh3_64_intdigest(view[at : at + self.step], name)
            hashes.append(name)
        for tier in self.tiers:
            tier.match(hashes)
        for tier in self.tiers:
            tier.record(hashes, slot)
