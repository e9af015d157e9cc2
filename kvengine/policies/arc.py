"""Adaptive replacement (ARC): chunks that were used once cannot drive out chunks that are used repeatedly.

Source: N. Megiddo, D. S. Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST 2003. Here the index decides
when to evict, and pins take chunks out for a while. So the paper's single routine is split over the calls: ``add`` is a
use, and ``evict`` is its REPLACE.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from typing_extensions import override

from kvengine.policies.base import Key, Policy


class Arc(Policy[Key]):
    """Two lists of idle chunks (used once, used repeatedly) and a ghost list of evicted keys for each.

    A chunk that returns soon after it was evicted shows that its list was too short. ``_target`` is the target length
    of the used-once list. Invariant: a key is in at most one list; a ghost list is no longer than the largest number of
    chunks that were ever idle at a time.
    """

    def __init__(self) -> None:
        self._once: OrderedDict[Key, None] = OrderedDict()
        self._again: OrderedDict[Key, None] = OrderedDict()
        self._left_once: OrderedDict[Key, None] = OrderedDict()
        self._left_again: OrderedDict[Key, None] = OrderedDict()
        self._seen: set[Key] = set()  # taken out by ``remove``: the next ``add`` counts as another use
        self._target = 0.0
        self._most = 1

    @override
    def add(self, key: Key) -> None:
        if key in self._seen:
            self._seen.discard(key)
            self._again[key] = None
        elif key in self._left_once:
            self._target = min(self._most, self._target + max(1.0, len(self._left_again) / len(self._left_once)))
            del self._left_once[key]
            self._again[key] = None
        elif key in self._left_again:
            self._target = max(0.0, self._target - max(1.0, len(self._left_once) / len(self._left_again)))
            del self._left_again[key]
            self._again[key] = None
        else:
            self._once[key] = None
        self._most = max(self._most, len(self))

    @override
    def remove(self, key: Key) -> None:
        if key in self._once:
            del self._once[key]
        else:
            del self._again[key]
        self._seen.add(key)

    @override
    def refresh(self, key: Key) -> None:
        (self._once if key in self._once else self._again).move_to_end(key)

    @override
    def forget(self, key: Key) -> None:
        self._seen.discard(key)

    @override
    def evict(self) -> Key:
        from_once = bool(self._once) and (len(self._once) > self._target or not self._again)
        chosen, left = (self._once, self._left_once) if from_once else (self._again, self._left_again)
        key = chosen.popitem(last=False)[0]
        left[key] = None
        while len(left) > self._most:
            left.popitem(last=False)
        return key

    @override
    def __len__(self) -> int:
        return len(self._once) + len(self._again)

    @override
    def __iter__(self) -> Iterator[Key]:
        return iter((*self._once, *self._again))
