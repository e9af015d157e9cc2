"""Idle blocks: not in use, but available for a later hit; evicted in the order of their last use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

from epp.lab.engine.tokens import BlockKey

NEVER = float("-inf")
"""The horizon before the first eviction."""


class IdleBlocks:
    """The idle blocks of a tier with their last use, oldest first. O(1) per block.

    Invariant: the ``at_horizon`` oldest of them were last used at the horizon or before.
    Owner: one tier of one engine, which reports uses in the order of their times.
    """

    __slots__ = ("at_horizon", "evicted", "horizon_s", "uses")

    def __init__(self) -> None:
        self.uses: OrderedDict[BlockKey, float] = OrderedDict()
        """Public for reading; only this class changes it."""
        self.horizon_s = NEVER
        """The latest last use of any block that was dropped; never decreases."""
        self.at_horizon = 0
        self.evicted = 0

    def __len__(self) -> int:
        return len(self.uses)

    def __contains__(self, key: BlockKey) -> bool:
        return key in self.uses

    def __iter__(self) -> Iterator[BlockKey]:
        return iter(self.uses)

    def add(self, keys: Sequence[BlockKey], now: float) -> None:
        """Add ``keys``, none of which is here yet; the last of them is the newest."""
        uses = self.uses
        for key in keys:
            uses[key] = now
        if now <= self.horizon_s:
            self.at_horizon += len(keys)

    def remove(self, keys: Iterable[BlockKey]) -> None:
        """Remove those of ``keys`` that are here, since a sequence uses them now."""
        uses, horizon_s = self.uses, self.horizon_s
        for key in keys:
            used_s = uses.pop(key, None)
            if used_s is not None and used_s <= horizon_s:
                self.at_horizon -= 1

    def use(self, keys: Sequence[BlockKey], now: float) -> None:
        """Record a use of those of ``keys`` that are here, the first of them as the most recent."""
        uses, horizon_s, left = self.uses, self.horizon_s, 0
        to_end = uses.move_to_end
        if not self.at_horizon or now <= horizon_s:  # `at_horizon` does not change
            for key in reversed(keys):
                if key in uses:
                    uses[key] = now
                    to_end(key)
            return
        for key in reversed(keys):
            used_s = uses.get(key)
            if used_s is not None:
                left += used_s <= horizon_s
                uses[key] = now
                to_end(key)
        self.at_horizon -= left

    def evict(self, count: int) -> None:
        """Evict the ``count`` oldest blocks."""
        if count <= 0:
            return
        uses, used_s = self.uses, NEVER
        pop = uses.popitem
        for _ in range(count):
            used_s = pop(False)[1]
        self.evicted += count
        if count <= self.at_horizon:  # only blocks at the horizon are evicted
            self.at_horizon -= count
        else:
            self.horizon_s = max(self.horizon_s, used_s)
            self.at_horizon = leading(uses.values(), self.horizon_s)

    def clear(self) -> None:
        """Drop all blocks. They do not count as evicted, but the horizon moves past them."""
        self.horizon_s = max(self.horizon_s, *self.uses.values(), NEVER)
        self.at_horizon = 0
        self.uses.clear()

    def check(self) -> None:
        """Raise AssertionError unless the invariant holds."""
        assert self.at_horizon == leading(self.uses.values(), self.horizon_s)  # noqa: S101 - this is the check
        assert list(self.uses.values()) == sorted(self.uses.values())  # noqa: S101


class Evicting:
    """A tier that keeps idle blocks and reports its evictions."""

    def __init__(self) -> None:
        self._idle = IdleBlocks()

    @property
    def evicted(self) -> int:
        """Named blocks that were evicted."""
        return self._idle.evicted

    @property
    def horizon_s(self) -> float:
        """The latest last use of any named block that was dropped; never decreases."""
        return self._idle.horizon_s

    @property
    def at_horizon(self) -> int:
        """Idle blocks that were last used at the horizon: the oldest ones."""
        return self._idle.at_horizon


def leading(used_s: Iterable[float], until_s: float) -> int:
    """Return how many of ``used_s``, from the first on, are not after ``until_s``. O(result)."""
    count = 0
    for each in used_s:
        if each > until_s:
            break
        count += 1
    return count
