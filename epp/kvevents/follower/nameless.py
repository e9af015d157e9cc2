"""Announced blocks of which only the hash is known: no tokens came with them, and no placed block has that hash yet."""

from __future__ import annotations

from epp.kvevents.follower.columns import Column

MOST = 200_000
"""Maximum number of such blocks per endpoint."""


class Nameless:
    """The counts of these blocks by hash (*name*), as ``residents`` keeps them.

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
