"""Least recently used (LRU): the chunk that has been idle longest is evicted first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from typing_extensions import override

from kvengine.policies.base import Key, Policy


class Lru(Policy[Key]):
    """The idle chunks in order of last use; evicts the one that has been idle longest."""

    is_in_order_of_use = True

    def __init__(self) -> None:
        self._idle: OrderedDict[Key, None] = OrderedDict()  # oldest first

    @override
    def add(self, key: Key) -> None:
        self._idle[key] = None

    @override
    def remove(self, key: Key) -> None:
        del self._idle[key]

    @override
    def refresh(self, key: Key) -> None:
        self._idle.move_to_end(key)

    @override
    def evict(self) -> Key:
        return self._idle.popitem(last=False)[0]

    @override
    def __len__(self) -> int:
        return len(self._idle)

    @override
    def __iter__(self) -> Iterator[Key]:
        return iter(tuple(self._idle))
