"""Announced blocks whose tokens are known, but whose parent is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

MOST = 200_000
"""Maximum number of waiting blocks per endpoint."""
MOST_BYTES = 64 << 20
"""Maximum number of bytes of their tokens."""


class Waiting(NamedTuple):
    """The blocks of one event."""

    hashes: list[int]
    data: bytes
    block_tokens: int


class WaitingBlocks:
    """The waiting blocks by the hash of their parent. Each call is O(1) on average, plus O(1) per event it moves."""

    def __init__(self) -> None:
        self.blocks = 0
        self._bytes = 0
        self._by_parent: dict[int, list[Waiting]] = {}
        self._until_look = 0  # adds beyond the limits until unneeded blocks are swept again

    def __bool__(self) -> bool:
        return bool(self._by_parent)

    def add(self, parent: int, waiting: Waiting, is_needed: Callable[[Waiting], bool]) -> bool:
        """Keep blocks until ``parent`` is known; return False beyond the limits.

        Blocks that are no longer needed (``is_needed``) are dropped now and then to make room.
        """
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
        """Remove and return the blocks that waited for ``parent``."""
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
