"""How often an engine computed what it has not stored yet, for tiers that a prompt enters when computed again.

Source: kvengine's ``admission.py``, whose rule this follows: a chunk counts each time that it is not there, and what
comes after one that must wait, waits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

REMEMBERED = 65_536
"""Chunks; the oldest is forgotten, by kvengine, too."""


class Offers:
    """Of one tier of one endpoint. Owner: the prefix cache."""

    def __init__(self, store_after: int, chunk_blocks: int, remembered: int = REMEMBERED) -> None:
        self.store_after = store_after
        self.chunk_blocks = chunk_blocks
        self._remembered = remembered
        self._counts: OrderedDict[bytes, int] = OrderedDict()

    def admit(self, chunks: Sequence[bytes]) -> int:
        """How many of ``chunks``, named by digests, enter now: a prompt's that are not there, from the first on."""
        admitted, waits = 0, False
        counts = self._counts
        for number, chunk in enumerate(chunks, 1):
            count = counts.pop(chunk, 0) + 1
            if waits or count < self.store_after:
                counts[chunk] = min(count, self.store_after)
                waits = True
            else:
                admitted = number
        while len(counts) > self._remembered:
            counts.popitem(last=False)
        return admitted
