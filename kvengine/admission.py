"""Which chunks are worth a place in host memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from kvengine.index import ChunkKey

REMEMBERED = 65_536
"""Chunks that were offered and not yet stored; the oldest is forgotten. About 8 MB. A guess: some prompts' worth for
every one that an engine runs at once."""


class Admission:
    """Stores a chunk when it is offered for the ``store_after``-th time. Owner: the planner.

    A chunk counts each time that it is computed, so what is asked for once is never stored when ``store_after`` is 2.
    """

    def __init__(self, store_after: int = 1, remembered: int = REMEMBERED) -> None:
        self.store_after = store_after
        self.deferred = 0
        """Offers that were refused."""
        self._remembered = remembered
        self._offers: OrderedDict[ChunkKey, int] = OrderedDict()

    def admit(self, keys: Sequence[ChunkKey]) -> int:
        """How many of ``keys``, a prompt's chunks that are not stored, are to be stored now, from the first on.

        A chunk is of no use without those before it, so the first that must wait makes the others wait.
        """
        if self.store_after <= 1:
            return len(keys)
        admitted = len(keys)
        for number, key in enumerate(keys):
            count = self._offers.pop(key, 0) + 1
            if count < self.store_after or number >= admitted:
                self._offers[key] = min(count, self.store_after)
                admitted = min(admitted, number)
        self.deferred += len(keys) - admitted
        while len(self._offers) > self._remembered:
            self._offers.popitem(last=False)
        return admitted
