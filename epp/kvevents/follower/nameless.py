"""Announced blocks of which only the name is known: no tokens came with them, and no other block has that name yet."""

from __future__ import annotations

from epp.kvevents.follower.columns import Column

MOST = 200_000
"""Blocks of one endpoint."""


class Nameless:
    """Counts by name, as ``residents`` keeps them. A *chunk* ends with the block that it is named by, and is longer.

    Invariant: no name has a count of 0.
    """

    def __init__(self) -> None:
        self._blocks: dict[int, int] = {}
        self._chunks: dict[int, tuple[int, int]] = {}  # counts, and the chunk's tokens

    def __len__(self) -> int:
        return len(self._blocks) + len(self._chunks)

    @property
    def has_chunks(self) -> bool:
        """Whether any name is a chunk's."""
        return bool(self._chunks)

    def add(self, name: int, column: Column, chunk_tokens: int = 0) -> bool:
        """Announce it; ``chunk_tokens`` is 0 for a single block. False where there are too many."""
        if len(self) >= MOST and name not in self._blocks and name not in self._chunks:
            return False
        if chunk_tokens:
            counts, _ = self._chunks.get(name, (0, 0))
            self._chunks[name] = column.more(counts), chunk_tokens
        else:
            self._blocks[name] = column.more(self._blocks.get(name, 0))
        return True

    def take(self, name: int) -> int:
        """The counts of a single block, which is known from now on; 0 for an unknown name."""
        return self._blocks.pop(name, 0)

    def take_chunk(self, name: int) -> tuple[int, int]:
        """The counts of a chunk, which is known from now on, and its tokens; zeros for an unknown name."""
        return self._chunks.pop(name, (0, 0))

    def has_chunk(self, name: int) -> bool:
        """Whether ``name`` is a chunk's."""
        return name in self._chunks

    def remove(self, name: int, column: Column) -> bool:
        """Take one announcement back; False where there is none."""
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
        """Take back all announcements that have these bits."""
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
