"""Which chunks are worth storing in host memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from kvengine.index import ChunkKey

REMEMBERED = 65_536
"""How many offered but not yet stored chunks are remembered; the oldest is forgotten first. About 8 MB. A guess:
several prompts' worth for every request that an engine runs at a time."""


class Admission:
    """Admits a chunk when it is offered for the ``store_after``-th time. Owner: the planner.

    A chunk is offered each time it is computed, so with ``store_after`` 2, a prompt that comes once is never stored.
    """

    def __init__(self, store_after: int = 1, remembered: int = REMEMBERED) -> None:
        self.store_after = store_after
        self.deferred = 0
        """How many chunks were refused, counted once for each offer."""
        self._remembered = remembered
        self._offers: OrderedDict[ChunkKey, int] = OrderedDict()

    def admit(self, keys: Sequence[ChunkKey]) -> int:
        """Return how many of ``keys``, counted from the first, to store now.

        ``keys``: a prompt's chunks that are not stored. A chunk is useless without those before it, so the first
        refused chunk defers all chunks after it.
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
