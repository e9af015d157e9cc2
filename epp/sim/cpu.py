"""The CPU tier: copies of prompt blocks in host memory, and the lanes that carry them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import takewhile

from epp.sim.gpu import NEVER
from epp.sim.tokens import BlockKey


class Lane:
    """One direction of the link between host and GPU: transfers run one after the other at a fixed rate."""

    def __init__(self, bytes_per_s: float, latency_s: float) -> None:
        self._bytes_per_s, self._latency_s = bytes_per_s, latency_s
        self._free_at = 0.0

    def reserve(self, size_bytes: int, now: float) -> float:
        """When a transfer asked for at ``now`` will be done."""
        self._free_at = max(now, self._free_at) + self._latency_s + size_bytes / self._bytes_per_s
        return self._free_at


class CpuBlocks:
    """Every stored block is idle (evictable, oldest first), pinned (being loaded) or arriving (being stored).

    Invariant: together they never exceed ``capacity``. Least recently used; within one prompt the tail goes first.
    Owner: one engine.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.evicted = 0
        self.horizon_s = NEVER
        """The latest last use of any block that is gone: never decreases."""
        self._idle: OrderedDict[BlockKey, float] = OrderedDict()  # with its last use
        self._pinned: dict[BlockKey, int] = {}  # loads, always > 0
        self._arriving: set[BlockKey] = set()

    @property
    def stored(self) -> int:
        """Blocks that can be loaded."""
        return len(self._idle) + len(self._pinned)

    @property
    def at_horizon(self) -> int:
        """Idle blocks that were last used at the horizon: the oldest ones. O(those)."""
        return len(list(takewhile(lambda used_s: used_s <= self.horizon_s, self._idle.values())))

    def matched(self, keys: Sequence[BlockKey], start: int = 0) -> int:
        """How many of ``keys``, from ``start`` on, can be loaded."""
        idle, pinned = self._idle, self._pinned
        for n in range(start, len(keys)):
            if keys[n] not in idle and keys[n] not in pinned:
                return n - start
        return len(keys) - start

    def touch(self, keys: Sequence[BlockKey], now: float = 0.0) -> None:
        """Note a use of those of ``keys`` that are stored, the first of them as the most recent."""
        for key in reversed(keys):
            if key in self._idle:
                self._idle[key] = now
                self._idle.move_to_end(key)

    def pin(self, keys: Sequence[BlockKey]) -> None:
        """Keep ``keys``, all stored, until ``unpin``."""
        for key in keys:
            self._idle.pop(key, None)
            self._pinned[key] = self._pinned.get(key, 0) + 1

    def unpin(self, keys: Sequence[BlockKey], now: float = 0.0) -> None:
        """Undo one ``pin``; counts as a use."""
        for key in reversed(keys):
            loads = self._pinned[key] - 1
            if loads:
                self._pinned[key] = loads
            else:
                del self._pinned[key]
                self._idle[key] = now

    def prepare_store(self, keys: Sequence[BlockKey], now: float = 0.0) -> list[BlockKey]:
        """Make room for those of ``keys`` that are not here, and return them; the caller stores and completes them.

        Never evicts one of ``keys``; where there is no room for all of them, the last are left out.
        """
        known = [key for key in keys if key in self._idle]
        self.touch(known, now)
        new = [key for key in keys if key not in self._idle and key not in self._pinned and key not in self._arriving]
        del new[max(0, self.capacity - len(self._pinned) - len(self._arriving) - len(known)) :]
        free = self.capacity - self.stored - len(self._arriving)
        for _ in range(len(new) - free):
            _, used_s = self._idle.popitem(last=False)
            self.horizon_s = max(self.horizon_s, used_s)
            self.evicted += 1
        self._arriving.update(new)
        return new

    def complete_store(self, keys: Sequence[BlockKey], now: float = 0.0) -> None:
        """The blocks that ``prepare_store`` returned can be loaded from now on."""
        for key in reversed(keys):
            self._arriving.remove(key)
            self._idle[key] = now

    def check(self) -> None:
        """Raise AssertionError unless the invariant holds."""
        idle, pinned = self._idle.keys(), self._pinned.keys()
        assert len(idle) + len(pinned) + len(self._arriving) <= self.capacity  # noqa: S101 - this is the check
        assert not idle & pinned  # noqa: S101
        assert not self._arriving & (idle | pinned)  # noqa: S101
