"""Announced blocks that cannot be placed yet: only their hash is known, or their parent is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from epp.kvevents.follower.columns import Column

MOST = 200_000
"""Maximum number of blocks of either kind per endpoint."""
MOST_BYTES = 64 << 20
"""Maximum number of bytes of the tokens of the blocks that wait for a parent."""


class HashOnlyBlocks:
    """The blocks of which only the hash (*name*) is known, with their counts by it, as ``residents`` keeps them. No
    tokens came with them, and no placed block has that hash yet.

    A *chunk* is a longer stretch of tokens, named by the block that it ends with.

    Invariant: no name has a count of 0.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, int] = {}
        self._chunks: dict[int, tuple[int, int]] = {}  # counts, and the chunk's size in tokens

    def __len__(self) -> int:
        return len(self._blocks) + len(self._chunks)

    @property
    def has_chunks(self) -> bool:
        """Whether any of the names is a chunk's."""
        return bool(self._chunks)

    def add(self, name: int, column: Column, chunk_tokens: int = 0) -> bool:
        """Count an announcement; ``chunk_tokens`` is 0 for a single block. Return False beyond the limit."""
        if len(self) >= MOST and name not in self._blocks and name not in self._chunks:
            return False
        if chunk_tokens:
            counts, _ = self._chunks.get(name, (0, 0))
            self._chunks[name] = column.more(counts), chunk_tokens
        else:
            self._blocks[name] = column.more(self._blocks.get(name, 0))
        return True

    def take(self, name: int) -> int:
        """Remove a single block, whose tokens are known now, and return its counts; 0 for an unknown name."""
        return self._blocks.pop(name, 0)

    def take_chunk(self, name: int) -> tuple[int, int]:
        """Remove a chunk, whose tokens are known now; return its counts and its tokens, zeros for an unknown name."""
        return self._chunks.pop(name, (0, 0))

    def has_chunk(self, name: int) -> bool:
        """Return whether ``name`` is a chunk's."""
        return name in self._chunks

    def remove(self, name: int, column: Column) -> bool:
        """Take one announcement back; return False if there was none."""
        counts = self._blocks.get(name, 0)
        if counts & column.counts:
            self._set(name, counts - column.one)
            return True
        counts, tokens = self._chunks.get(name, (0, 0))
        if counts & column.counts:
            self._set_chunk(name, counts - column.one, tokens)
            return True
        return False

    def clear(self, counts: int) -> None:
        """Take back all announcements in the bits ``counts``."""
        for name, value in list(self._blocks.items()):
            self._set(name, value & ~counts)
        for name, (value, tokens) in list(self._chunks.items()):
            self._set_chunk(name, value & ~counts, tokens)

    def _set(self, name: int, counts: int) -> None:
        if counts:
            self._blocks[name] = counts
        else:
            del self._blocks[name]

    def _set_chunk(self, name: int, counts: int, tokens: int) -> None:
        if counts:
            self._chunks[name] = counts, tokens
        else:
            del self._chunks[name]


class WaitingEvent(NamedTuple):
    """The blocks of one event."""

    hashes: list[int]
    data: bytes
    block_tokens: int


class WaitingBlocks:
    """The blocks whose tokens are known, by the hash of their parent, which is not.

    Each call is O(1) on average, plus O(1) per event that it moves.
    """

    def __init__(self) -> None:
        self.blocks = 0
        self._bytes = 0
        self._by_parent: dict[int, list[WaitingEvent]] = {}
        self._until_look = 0  # adds beyond the limits until unneeded blocks are swept again

    def __bool__(self) -> bool:
        return bool(self._by_parent)

    def add(self, parent: int, waiting: WaitingEvent, is_needed: Callable[[WaitingEvent], bool]) -> bool:
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

    def pop(self, parent: int) -> Sequence[WaitingEvent]:
        """Remove and return the blocks that waited for ``parent``."""
        found = self._by_parent.pop(parent, ())
        for each in found:
            self.blocks -= len(each.hashes)
            self._bytes -= len(each.data)
        return found

    def _is_too_much(self, waiting: WaitingEvent) -> bool:
        return self.blocks + len(waiting.hashes) > MOST or self._bytes + len(waiting.data) > MOST_BYTES

    def _put(self, parent: int, waiting: WaitingEvent) -> None:
        self._by_parent.setdefault(parent, []).append(waiting)
        self.blocks += len(waiting.hashes)
        self._bytes += len(waiting.data)
