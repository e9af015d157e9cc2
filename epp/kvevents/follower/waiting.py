"""Announced blocks whose tokens are known, and what they build upon is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

MOST = 200_000
"""Blocks of one endpoint."""
MOST_BYTES = 64 << 20
"""Of their tokens."""


class Waiting(NamedTuple):
    """Blocks of one event."""

    hashes: list[int]
    data: bytes
    block_tokens: int


class WaitingBlocks:
    """By the hash of what they build upon. O(1) on average for each call, and event in it."""

    def __init__(self) -> None:
        self.blocks = 0
        self._bytes = 0
        self._by_parent: dict[int, list[Waiting]] = {}
        self._until_look = 0  # so often nobody looks again for what is not needed any more

    def __bool__(self) -> bool:
        return bool(self._by_parent)

    def add(self, parent: int, waiting: Waiting, is_needed: Callable[[Waiting], bool]) -> bool:
        """False where there are too many, also without those that are not needed any more."""
        if self._is_too_much(waiting):
            self._until_look -= 1
            if self._until_look < 0:
                for each in list(self._by_parent):
                    for old in self.pop(each):
                        if is_needed(old):
                            self._put(each, old)
                self._until_look = len(self._by_parent)
        if self._is_too_much(waiting):
            return False
        self._put(parent, waiting)
        return True

    def pop(self, parent: int) -> Sequence[Waiting]:
        """What waited for ``parent``."""
        found = self._by_parent.pop(parent, ())
        for each in found:
            self.blocks -= len(each.hashes)
            self._bytes -= len(each.data)
        return found

    def _is_too_much(self, waiting: Waiting) -> bool:
        return self.blocks + len(waiting.hashes) > MOST or self._bytes + len(waiting.data) > MOST_BYTES

    def _put(self, parent: int, waiting: Waiting) -> None:
        self._by_parent.setdefault(parent, []).append(waiting)
        self.blocks += len(waiting.hashes)
        self._bytes += len(waiting.data)
