"""How often an engine computed what it has not stored yet, for tiers that store a prompt when it is computed again.

Source: kvengine's ``admission.py``, whose rule this follows: a chunk is counted each time that it is not there, and the
chunks behind one that must wait have to wait, too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

REMEMBERED = 65_536
"""Number of chunks remembered; beyond it the oldest is forgotten, as in kvengine."""


class ComputeCounts:
    """Counts of the chunks offered to one tier of one endpoint. Owner: the prefix cache."""

    def __init__(self, store_after: int, chunk_blocks: int, remembered: int = REMEMBERED) -> None:
        self.store_after = store_after
        self.chunk_blocks = chunk_blocks
        self._remembered = remembered
        self._counts: OrderedDict[bytes, int] = OrderedDict()

    def admit(self, chunks: Sequence[bytes]) -> int:
        """Count ``chunks`` as computed once more, and return how many of them enter now, counted from the first.

        ``chunks`` are the digests of a prompt's chunks that the tier does not hold.
        """
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
