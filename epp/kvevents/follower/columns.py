"""Where blocks are announced: ranks, media and cache groups, each with 16 bits in the number that is kept for a hash.

… │ column 2 │ column 1 │ column 0 │ run, 32 bits │ depth, 20 bits │
"""

from __future__ import annotations

from typing import NamedTuple

TIERS_BY_MEDIUM = {"": 0, "GPU": 0, "CPU": 1, "STORAGE": 2}
"""Positions in ``scorers.precise.index.TIERS``. Source: vLLM's media; it has none for what it is to say of its GPU."""
TIERS = 3
DEPTH_BITS = 20
RUN_BITS = 32
COUNT_BITS = 16
COUNTS_AT = DEPTH_BITS + RUN_BITS
MOST_DEPTH = 1 << DEPTH_BITS
MOST_COLUMNS = 48
RUN = ((1 << RUN_BITS) - 1) << DEPTH_BITS
DEPTH = MOST_DEPTH - 1


class Column(NamedTuple):
    """The announcements of one rank in one medium, for one cache group."""

    one: int
    """What an announcement adds."""
    counts: int
    """The bits of its count."""
    rank: int
    tier: int

    def more(self, value: int) -> int:
        """``value`` with one announcement more; what was announced 65,535 times is announced no more often."""
        return value if value & self.counts == self.counts else value + self.one


class Columns:
    """Those of one source of events."""

    def __init__(self) -> None:
        self.masks = [0] * TIERS
        """By tier: the counts of its columns."""
        self._columns: dict[tuple[int, int, int], Column] = {}

    def of_tier(self, tier: int) -> list[Column]:
        """Those that are known."""
        return [column for column in self._columns.values() if column.tier == tier]

    def announced(self, counts: int) -> list[Column]:
        """The columns that ``counts`` count something in, as often as they do."""
        return [c for c in self._columns.values() for _ in range((counts & c.counts) // c.one)]

    def column(self, rank: int, medium: str | None, group: int) -> Column | None:
        """None for a medium that nobody here knows, and for one column too many."""
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
