"""Where a prompt's blocks are, by a model that has no tree: for each endpoint and tier an ordered dict of blocks."""

from __future__ import annotations

from collections import OrderedDict

from scorers.base import Prompt, Slot
from scorers.index.index import BYTES_PER_TOKEN

Key = tuple[bytes, bytes]


class NaiveTier:
    """Least recently used blocks, each named by everything before it; the last block of a prompt is the oldest."""

    def __init__(self) -> None:
        self.capacity = 0
        self.gated = False
        self.blocks: OrderedDict[Key, float] = OrderedDict()  # with their last use; oldest first

    def record(self, keys: list[Key], now: float) -> None:
        for key in reversed(keys):
            self.blocks[key] = now
            self.blocks.move_to_end(key)
        self.evict()

    def evict_unused(self, until_s: float) -> None:
        for key in [key for key, used_s in self.blocks.items() if used_s <= until_s]:
            del self.blocks[key]

    def evict(self) -> None:
        while len(self.blocks) > self.capacity:
            self.blocks.popitem(last=False)

    def shorten(self, until_s: float, blocks: int) -> None:
        """Of those with the earliest last use, the newest ``blocks`` stay."""
        first = min(self.blocks.values(), default=until_s + 1)
        oldest = [key for key, used_s in self.blocks.items() if used_s == first]
        for key in oldest[: max(0, len(oldest) - blocks)] if first <= until_s else ():
            del self.blocks[key]

    def continues(self, key: Key) -> bool:
        """Return whether a prompt that is held goes on behind ``key``."""
        return any(other[0] == key[0] and other != key and other[1].startswith(key[1]) for other in self.blocks)

    def depth(self, keys: list[Key]) -> int:
        return next((n for n, key in enumerate(keys) if key not in self.blocks), len(keys))


class NaiveIndex:
    def __init__(self, block_tokens: int) -> None:
        self.block_bytes = block_tokens * BYTES_PER_TOKEN
        self.tiers: dict[tuple[Slot, int], NaiveTier] = {}

    def keys(self, prompt: Prompt, limit_tokens: int) -> list[Key]:
        whole = min(len(prompt.data), limit_tokens * BYTES_PER_TOKEN) // self.block_bytes
        return [(prompt.identity, prompt.data[: (n + 1) * self.block_bytes]) for n in range(whole)]
