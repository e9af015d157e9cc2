"""Where blocks are announced: ranks, media and cache groups, each with a 16-bit count in the number kept per block.

… │ column 2 │ column 1 │ column 0 │ run, 32 bits │ depth, 20 bits │
"""

from __future__ import annotations

from typing import NamedTuple

TIERS_BY_MEDIUM = {"": 0, "GPU": 0, "CPU": 1, "STORAGE": 2}
"""Positions in ``scorers.precise.index.TIERS``. Source: vLLM's media; an event without a medium means GPU memory."""
TIERS = len(set(TIERS_BY_MEDIUM.values()))
DEPTH_BITS = 20
RUN_BITS = 32
COUNT_BITS = 16
COUNTS_AT = DEPTH_BITS + RUN_BITS
MOST_DEPTH = 1 << DEPTH_BITS
MOST_COLUMNS = 48
RUN = ((1 << RUN_BITS) - 1) << DEPTH_BITS
DEPTH = MOST_DEPTH - 1


class Column(NamedTuple):
    """The bits that count the announcements of one rank in one medium, for one cache group."""

    one: int
    """What one announcement adds to the number."""
    counts: int
    """A mask of the count's bits."""
    rank: int
    tier: int

    def more(self, value: int) -> int:
        """Return ``value`` with one more announcement. The count saturates at 65,535."""
        return value if value & self.counts == self.counts else value + self.one


class Columns:
    """The columns of one endpoint, numbered as they are first seen."""

    def __init__(self) -> None:
        self.masks = [0] * TIERS
        """By tier: the bits of the counts of all its columns."""
        self._columns: dict[tuple[int, int, int], Column] = {}

    def of_tier(self, tier: int) -> list[Column]:
        """Return the columns of a tier that have been seen."""
        return [column for column in self._columns.values() if column.tier == tier]

    def announced(self, counts: int) -> list[Column]:
        """Return the columns with a count in ``counts``, each as often as its count."""
        return [c for c in self._columns.values() for _ in range((counts & c.counts) // c.one)]

    def column(self, rank: int, medium: str | None, group: int) -> Column | None:
        """Return the column, which is added if it is new; None for an unknown medium, or beyond ``MOST_COLUMNS``."""
        tier = TIERS_BY_MEDIUM.get((medium or "").upper())
        if tier is None:
            return None
        key = (rank, tier, group)
        column = self._columns.get(key)
        if column is None and len(self._columns) < MOST_COLUMNS:
            one = 1 << (COUNTS_AT + COUNT_BITS * len(self._columns))
            column = self._columns[key] = Column(one, one * ((1 << COUNT_BITS) - 1), rank, tier)
            self.masks[tier] |= column.counts
        return column
