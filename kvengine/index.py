"""Which chunk of KV lies in which slot of host memory.

    absent ──insert──► writing ──commit──► ready, pinned ──unpin──► ready, idle ──(evicted)──► absent
                          └──drop──► absent          ▲─────────pin────────┘

``forget`` hides a chunk from lookups at once, and frees its slot as soon as no job reads or writes it.

A *chunk* is a group of blocks that are moved together. Its key identifies all tokens up to its end. A *slot* is its
place in host memory.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, NewType

from kvengine.errors import NoSpace
from kvengine.policies import Lru, Policy

ChunkKey = NewType("ChunkKey", bytes)
"""Identifies a model, a layout and every token from the prompt's start to the chunk's end."""
Slot = NewType("Slot", int)


class Placement(NamedTuple):
    """The result of an insertion."""

    slots: list[Slot]
    """One for each new key, in the same order."""
    evicted: list[ChunkKey]


class _Held:
    """One chunk's slot and state."""

    __slots__ = ("forgotten", "pins", "ready", "slot", "used_s", "written")

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.pins = 1
        self.ready = False  # whether lookups find it
        self.written = False
        self.forgotten = False
        self.used_s = 0.0


class ChunkIndex:
    """The map from chunks to slots. Lookups find ready chunks only.

    Invariant: every slot is exactly one of free, idle (evictable) and pinned. O(1) per key. A call that raises has
    changed nothing. ``generation`` changes whenever a lookup could return another result than before. Owned by one
    thread; not locked.

    Recency is the time of the last ``unpin`` or ``refresh``. Callers pass a prompt's last chunk first, so that eviction
    begins with chunks that no other chunk depends on.
    """

    def __init__(
        self, slots: int, policy: Policy[ChunkKey] | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.generation = 0
        self.horizon_s = 0.0
        """The latest last use of any chunk that has left the index, in Unix time; never decreases, 0 before the first
        one leaves. Under LRU, every chunk that was stored and last used after this time is still there."""
        self._clock = clock
        self._policy: Policy[ChunkKey] = policy if policy is not None else Lru()
        self._slots = 0
        self._free: deque[Slot] = deque()
        self._held: dict[ChunkKey, _Held] = {}
        self._pinned = 0
        self._ready = 0
        self._idle_since: dict[float, int] = {}  # last use -> number of idle chunks
        self.grow(slots)

    @property
    def slots(self) -> int:
        """The number of slots, whatever their state."""
        return self._slots

    @property
    def resident(self) -> int:
        """Chunks that have a slot, including those being written."""
        return len(self._held)

    @property
    def ready(self) -> int:
        """Chunks that a lookup can find."""
        return self._ready

    @property
    def pinned(self) -> int:
        """Chunks that cannot be evicted now."""
        return self._pinned

    @property
    def at_horizon(self) -> int:
        """Chunks that were last used exactly at the horizon and are still there.

        These are the beginning of what was used at that time. 0 under a policy that does not evict in order of use,
        since they need not be the beginning then.
        """
        return self._idle_since.get(self.horizon_s, 0) if self._policy.is_in_order_of_use else 0

    def room(self, chunks: int) -> bool:
        """Return whether ``insert`` would find slots for this many chunks."""
        return chunks <= len(self._free) + len(self._policy)

    def grow(self, slots: int) -> None:
        """Raise the number of slots to ``slots``; a smaller number changes nothing."""
        self._free.extend(Slot(number) for number in range(self._slots, slots))
        self._slots = max(self._slots, slots)

    def __contains__(self, key: ChunkKey) -> bool:
        """Return whether ``key`` has a slot, ready or not."""
        return key in self._held

    def match(self, keys: Sequence[ChunkKey]) -> int:
        """Return how many of ``keys``, counted from the first, are ready."""
        held = self._held
        for count, key in enumerate(keys):
            found = held.get(key)
            if found is None or not found.ready:
                return count
        return len(keys)

    def pin(self, keys: Sequence[ChunkKey]) -> list[Slot]:
        """Protect ready chunks from eviction until ``unpin``. Raises: KeyError for a chunk that is not ready."""
        found = [self._held[key] for key in keys]
        for key, held in zip(keys, found, strict=True):
            if not held.ready:
                raise KeyError(key)
        for key, held in zip(keys, found, strict=True):
            if held.pins == 0:
                self._policy.remove(key)
                self._pinned += 1
                self._count_idle(held.used_s, -1)
            held.pins += 1
        return [held.slot for held in found]

    def unpin(self, keys: Sequence[ChunkKey]) -> None:
        """Remove one pin from each chunk; those without pins become idle, the first one the least recent.

        A chunk that was forgotten in the meantime is released with its last pin. Raises: KeyError for a chunk that is
        not pinned or not written.
        """
        now = self._clock()
        for key in keys:
            held = self._held[key]
            if held.pins == 0 or not held.written:
                raise KeyError(key)
            held.pins -= 1
            if held.pins == 0:
                self._pinned -= 1
                held.used_s = now
                self._count_idle(now, 1)
                if held.forgotten:
                    self._policy.forget(key)
                    self._release(key)
                else:
                    self._policy.add(key)

    def refresh(self, keys: Iterable[ChunkKey]) -> None:
        """Mark idle chunks as used until now, the first one the least recent.

        Pinned chunks are skipped, since ``unpin`` will mark them; so are keys without a slot.
        """
        now = self._clock()
        for key in keys:
            held = self._held.get(key)
            if held is not None and held.pins == 0:
                self._count_idle(held.used_s, -1)
                self._count_idle(now, 1)
                held.used_s = now
                self._policy.refresh(key)

    def insert(self, keys: Sequence[ChunkKey]) -> Placement:
        """Give each new key a slot to be written, evicting idle chunks as needed. The new chunks are pinned.

        Raises: NoSpace when fewer than len(keys) slots are free or idle; ValueError for a key that already has a slot.
        """
        for key in keys:
            if key in self._held:
                raise ValueError(f"{key.hex()} is held already")
        if not self.room(len(keys)):
            raise NoSpace(wanted=len(keys), free=len(self._free), idle=len(self._policy))
        evicted = []
        while len(self._free) < len(keys):
            key = self._policy.evict()
            self._release(key)
            evicted.append(key)
        for key in keys:
            self._held[key] = _Held(self._free.popleft())
        self._pinned += len(keys)
        if evicted:
            self.generation += 1
        return Placement([self._held[key].slot for key in keys], evicted)

    def commit(self, keys: Sequence[ChunkKey]) -> list[ChunkKey]:
        """Mark chunks as written, so that lookups find them; they stay pinned.

        Returns the chunks that can be found now: all except those that were forgotten while they were being written.
        """
        for key in keys:
            held = self._held[key]
            held.written = True
            before, held.ready = held.ready, not held.forgotten
            self._ready += held.ready - before
        self.generation += 1
        return [key for key in keys if self._held[key].ready]

    def drop(self, keys: Sequence[ChunkKey]) -> None:
        """Free the slots of chunks that could not be written. Raises: KeyError for a chunk that is written."""
        for key in keys:
            if self._held[key].written:
                raise KeyError(key)
        for key in keys:
            self._free.append(self._held.pop(key).slot)
        self._pinned -= len(keys)

    def forget(self, key: ChunkKey) -> bool:
        """Hide ``key`` from lookups, and free its slot now or with its last pin.

        Returns whether a lookup could have found it before.
        """
        held = self._held.get(key)
        if held is None:
            return False
        found, held.ready, held.forgotten = held.ready, False, True
        self._ready -= found
        if held.pins == 0:
            self._policy.remove(key)
            self._policy.forget(key)
            self._release(key)
        if found:
            self.generation += 1
        return found

    def clear(self) -> list[ChunkKey]:
        """Forget every chunk, including those in use.

        Returns those that lookups could find: idle chunks in eviction order, then the others.
        """
        return [key for key in (*self._policy, *self._held) if self.forget(key)]

    def _release(self, key: ChunkKey) -> None:
        gone = self._held.pop(key)
        self._ready -= gone.ready
        self._count_idle(gone.used_s, -1)
        self.horizon_s = max(self.horizon_s, gone.used_s)
        self._free.append(gone.slot)

    def _count_idle(self, used_s: float, change: int) -> None:
        count = self._idle_since.get(used_s, 0) + change
        if count:
            self._idle_since[used_s] = count
        else:
            del self._idle_since[used_s]

    def __iter__(self) -> Iterator[ChunkKey]:
        """Iterate over every key that has a slot."""
        return iter(self._held)

    def check(self) -> None:
        """Check the invariants. Raises: AssertionError when one does not hold."""
        used = [held.slot for held in self._held.values()]
        every = sorted([*used, *self._free])
        assert every == list(range(self._slots)), "a slot is lost or shared"  # noqa: S101
        idle = {key for key, held in self._held.items() if held.pins == 0}
        assert idle == set(self._policy), "idle chunks and the policy's differ"  # noqa: S101
        assert self._ready == sum(held.ready for held in self._held.values()), "ready chunks are miscounted"  # noqa: S101
        assert self._pinned == len(self._held) - len(idle), "pinned chunks are miscounted"  # noqa: S101
        since: dict[float, int] = {}
        for key in idle:
            since[self._held[key].used_s] = since.get(self._held[key].used_s, 0) + 1
        assert since == self._idle_since, "idle chunks are counted wrongly by their last use"  # noqa: S101
        assert all(held.ready for key, held in self._held.items() if key in idle), "an idle chunk is not ready"  # noqa: S101
