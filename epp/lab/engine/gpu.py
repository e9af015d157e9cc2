"""The paged GPU cache: blocks in use, blocks kept for a later hit, free blocks.

Which physical block holds what makes no difference to timing, so blocks are counted, not numbered.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from epp.lab.engine.idle import Evicting
from epp.lab.engine.tokens import BlockKey


class GpuBlocks(Evicting):
    """The GPU's blocks: each is free, idle (evictable, oldest first), pinned (in use) or private (in use, unnamed).

    Idle and pinned blocks are named: a later request can hit them.
    Invariant: the four counts add up to ``capacity``. O(1) per block. A call that raises has changed nothing.
    Source: vLLM's block pool. Blocks are freed tail first, so that a prefix outlives what follows it; unnamed blocks
    are reused before any named one is evicted. A block that two sequences compute at once is named for the first and
    stays private to the other.
    Owner: one engine.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self._free = capacity
        self._pinned: dict[BlockKey, int] = {}  # users of each block, always > 0
        self._private = 0

    @property
    def used(self) -> int:
        """Blocks that some sequence uses."""
        return len(self._pinned) + self._private

    @property
    def cached(self) -> int:
        """Blocks that a later request could hit."""
        return len(self._pinned) + len(self._idle)

    def matched(self, keys: Sequence[BlockKey]) -> int:
        """Return how many of ``keys``, from the first on, are cached."""
        pinned, idle = self._pinned, self._idle.uses
        for n, key in enumerate(keys):
            if key not in pinned and key not in idle:
                return n
        return len(keys)

    def can_take(self, hits: Sequence[BlockKey], private: int) -> bool:
        """Return whether ``take`` would succeed."""
        idle = self._idle.uses
        left = self._free + len(idle) - private
        return left >= len(hits) or left >= sum([key in idle for key in hits])

    def take(self, hits: Sequence[BlockKey], private: int) -> None:
        """Pin the cached ``hits`` and hand out ``private`` blocks, evicting the oldest idle ones as needed.

        Raises: MemoryError when ``can_take`` is false; nothing is changed then.
        """
        if not self.can_take(hits, private):
            raise MemoryError(f"{private} blocks wanted; {self._free} free, {len(self._idle)} idle of {self.capacity}")
        pinned = self._pinned
        self._idle.remove([key for key in hits if key not in pinned])
        for key in hits:
            pinned[key] = pinned.get(key, 0) + 1
        missing = private - self._free
        if missing > 0:
            self._idle.evict(missing)
            self._free += missing
        self._free -= private
        self._private += private

    def name(self, keys: Sequence[BlockKey]) -> Sequence[BlockKey]:
        """Turn a private block into a pinned one for each of ``keys`` that is not pinned already; return those keys."""
        pinned, idle = self._pinned, self._idle.uses
        if not pinned.keys().isdisjoint(keys):
            keys = [key for key in keys if key not in pinned]
        if not idle.keys().isdisjoint(keys):  # the same content was computed again, so the older copy is freed
            before = len(idle)
            self._idle.remove(keys)
            self._free += before - len(idle)
        self._private -= len(keys)
        pinned.update(dict.fromkeys(keys, 1))
        return keys

    def release(self, named: Sequence[BlockKey], private: int, now: float = 0.0) -> None:
        """Release the blocks of a sequence. ``named`` is in prefix order; the last of them will be evicted first."""
        pinned = self._pinned
        unused = [key for key in reversed(named) if pinned[key] == 1]
        if len(unused) < len(named):
            for key in named:
                pinned[key] -= 1
        for key in unused:
            del pinned[key]
        self._idle.add(unused, now)
        self._private -= private
        self._free += private

    def reset(self) -> None:
        """Drop all idle blocks; blocks in use stay."""
        self._free += len(self._idle)
        self._idle.clear()

    def oldest(self, n: int) -> list[BlockKey]:
        """Return the ``n`` blocks that would be evicted next."""
        return list(islice(self._idle, n))

    def check(self) -> None:
        """Raise AssertionError unless the invariant holds."""
        counts = (self._free, len(self._idle), len(self._pinned), self._private)
        assert min(counts) >= 0, counts  # noqa: S101 - this is the check
        assert sum(counts) == self.capacity, counts  # noqa: S101
        assert not self._idle.uses.keys() & self._pinned.keys()  # noqa: S101
        assert all(users > 0 for users in self._pinned.values())  # noqa: S101
        self._idle.check()
