"""An engine with two strict LRU tiers, block by block, which records when each block was really used."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from math import inf

Block = str
"""Everything from the prompt's start to the block's end; one letter is one block."""


def blocks_of(prompt: str) -> list[Block]:
    return [prompt[: n + 1] for n in range(len(prompt))]


@dataclass
class LruTier:
    """A tier with its least recently used block first; blocks in use are not evicted."""

    capacity: int
    horizon_s: float = -inf
    used_s: OrderedDict[Block, float] = field(default_factory=OrderedDict)
    last_s: dict[Block, float] = field(default_factory=dict)
    """The last use of each block, including blocks that are gone."""
    users: dict[Block, int] = field(default_factory=dict)

    def can_hold(self, blocks: list[Block]) -> bool:
        return len(self.users.keys() | set(blocks)) <= self.capacity

    def take(self, blocks: list[Block]) -> None:
        """Start to use ``blocks``, which stay in use until ``give``."""
        for block in blocks:
            self.users[block] = self.users.get(block, 0) + 1
            self.used_s.setdefault(block, -inf)
        while len(self.used_s) > self.capacity:
            block = next(block for block in self.used_s if block not in self.users)
            self.horizon_s = max(self.horizon_s, self.used_s.pop(block))

    def give(self, blocks: list[Block], now: float) -> None:
        """End the use of ``blocks``, the last block first."""
        for block in reversed(blocks):
            self.users[block] -= 1
            if not self.users[block]:
                del self.users[block]
            self.used_s[block] = self.last_s[block] = now
            self.used_s.move_to_end(block)

    @property
    def at_horizon(self) -> int:
        """Blocks that were last used at the horizon and are still there."""
        return sum(used_s == self.horizon_s and block not in self.users for block, used_s in self.used_s.items())

    def holds(self, prompt: str) -> int:
        """Return how many blocks the tier holds from the prompt's start."""
        return next((n for n, block in enumerate(blocks_of(prompt)) if block not in self.used_s), len(prompt))


class LruEngine:
    """Stores a prompt in the CPU tier when it is computed; what is kept of it there counts as used until the end."""

    def __init__(self, gpu: int, cpu: int) -> None:
        self.gpu, self.cpu = LruTier(gpu), LruTier(cpu)
        self.running: dict[int, str] = {}

    def begin(self, request: int, prompt: str, now: float) -> bool:
        blocks = blocks_of(prompt)
        if not self.gpu.can_hold(blocks):
            return False
        self.running[request] = prompt
        self.gpu.take(blocks)
        self.cpu.take(blocks)
        self.cpu.give(blocks, now)
        return True

    def end(self, request: int, now: float) -> None:
        blocks = blocks_of(self.running.pop(request))
        self.gpu.give(blocks, now)
        kept = [block for block in blocks if block in self.cpu.used_s]
        self.cpu.take(kept)
        self.cpu.give(kept, now)
