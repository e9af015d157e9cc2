"""The CPU tier: copies of prompt blocks in host memory, and the lanes that transfer them."""

from __future__ import annotations

from collections.abc import Sequence

from epp.lab.engine.idle import Evicting
from epp.lab.engine.tokens import BlockKey


class Lane:
    """One direction of the link between host and GPU: transfers run one after the other at a fixed rate."""

    def __init__(self, bytes_per_s: float, latency_s: float) -> None:
        self._bytes_per_s, self._latency_s = bytes_per_s, latency_s
        self._free_at = 0.0

    def reserve(self, size_bytes: int, now: float) -> float:
        """Queue a transfer at ``now`` and return when it will be done."""
        self._free_at = max(now, self._free_at) + self._latency_s + size_bytes / self._bytes_per_s
        return self._free_at


class CpuBlocks(Evicting):
    """The CPU tier's blocks: each is idle (evictable, oldest first), pinned (being loaded) or arriving (being stored).

    Invariant: together they never exceed ``capacity``. Eviction is least recently used; within one prompt the tail goes
    first.
    Owner: one engine.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self._pinned: dict[BlockKey, int] = {}  # loads of each block, always > 0
        self._arriving: set[BlockKey] = set()

    @property
    def stored(self) -> int:
        """Blocks that can be loaded."""
        return len(self._idle) + len(self._pinned)

    def matched(self, keys: Sequence[BlockKey], start: int = 0) -> int:
        """Return how many of ``keys``, from ``start`` on, can be loaded."""
        idle, pinned = self._idle.uses, self._pinned
        for n in range(start, len(keys)):
            if keys[n] not in idle and keys[n] not in pinned:
                return n - start
        return len(keys) - start

    def touch(self, keys: Sequence[BlockKey], now: float = 0.0) -> None:
        """Record a use of those of ``keys`` that are stored, the first of them as the most recent."""
        self._idle.use(keys, now)

    def pin(self, keys: Sequence[BlockKey]) -> None:
        """Keep ``keys``, all of them stored, until ``unpin``."""
        self._idle.remove(keys)
        pinned = self._pinned
        for key in keys:
            pinned[key] = pinned.get(key, 0) + 1

    def unpin(self, keys: Sequence[BlockKey], now: float = 0.0) -> None:
        """Undo one ``pin``, which counts as a use."""
        pinned = self._pinned
        unused: list[BlockKey] = []
        for key in reversed(keys):
            loads = pinned[key] - 1
            if loads:
                pinned[key] = loads
            else:
                del pinned[key]
                unused.append(key)
        self._idle.add(unused, now)

    def prepare_store(self, keys: Sequence[BlockKey], now: float = 0.0) -> list[BlockKey]:
        """Make room for those of ``keys`` that are not here, and return them; the caller stores and completes them.

        Never evicts one of ``keys``. Where there is no room for all of them, the last are left out.
        """
        idle, pinned, arriving = self._idle.uses, self._pinned, self._arriving
        known = [key for key in keys if key in idle]
        self._idle.use(known, now)
        new = [key for key in keys if key not in idle and key not in pinned and key not in arriving]
        del new[max(0, self.capacity - len(self._pinned) - len(self._arriving) - len(known)) :]
        free = self.capacity - self.stored - len(arriving)
        self._idle.evict(len(new) - free)
        arriving.update(new)
        return new

    def complete_store(self, keys: Sequence[BlockKey], now: float = 0.0) -> None:
        """Make the blocks that ``prepare_store`` returned loadable."""
        self._arriving.difference_update(keys)
        self._idle.add(keys[::-1], now)

    def check(self) -> None:
        """Raise AssertionError unless the invariant holds."""
        idle, pinned = self._idle.uses.keys(), self._pinned.keys()
        assert len(idle) + len(pinned) + len(self._arriving) <= self.capacity  # noqa: S101 - this is the check
        assert not idle & pinned  # noqa: S101
        assert not self._arriving & (idle | pinned)  # noqa: S101
        self._idle.check()
