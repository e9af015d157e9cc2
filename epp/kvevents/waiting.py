"""Announced blocks whose tokens are known, and what they build upon is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

MOST = 200_000
"""Blocks of one endpoint."""


class Waiting(NamedTuple):
    """Blocks of one event."""

    hashes: list[int]
    data: bytes
    block_tokens: int


class WaitingBlocks:
    """By the hash of what they build upon."""

    def __init__(self) -> None:
        self.blocks = 0
        self._by_parent: dict[int, list[Waiting]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_parent)

    def add(self, parent: int, waiting: Waiting, is_needed: Callable[[Waiting], bool]) -> bool:
        """False where there are too many, also without those that are not needed any more."""
        count = len(waiting.hashes)
        if self.blocks + count > MOST:
            for each in list(self._by_parent):
                self._put(each, [old for old in self.pop(each) if is_needed(old)])
        if self.blocks + count > MOST:
            return False
        self._put(parent, [*self._by_parent.get(parent, ()), waiting])
        return True

    def pop(self, parent: int) -> Sequence[Waiting]:
        """What waited for ``parent``."""
        found = self._by_parent.pop(parent, ())
        self.blocks -= sum([len(each.hashes) for each in found])
        return found

    def _put(self, parent: int, several: list[Waiting]) -> None:
        if several:
            self.pop(parent)
            self._by_parent[parent] = several
            self.blocks += sum([len(each.hashes) for each in several])
