"""The blocks of one endpoint by the names that its engine gives them: how often each was announced where, and where it
lies.

For each size of block and each name there is one number: how often it was announced in each *column* (rank, medium and
cache group; 16 bits each), and its place among the runs. A block leaves a tier when it has been removed as often as it
was announced there. One that has no place yet is counted in the same way.

Cost: one dictionary entry, about 140 bytes, for a block in however many tiers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from epp.kvevents.follower.columns import COUNTS_AT, DEPTH, DEPTH_BITS, RUN, TIERS, Column
from epp.kvevents.follower.run import Place, Run
from epp.kvevents.follower.runs import Runs

MOST_BLOCKS = 4_000_000
"""Of one endpoint: 64 million tokens in blocks of 16."""
MOST_TOKENS = 1 << 27
"""Of one endpoint, 4 bytes each. A guess: what it would keep in several terabytes of storage."""
MOST_SIZES = 8
"""Of blocks of one endpoint. A guess: its GPU memory has one, and each tier below perhaps another."""

Table: TypeAlias = dict[int, int]
"""By name: counts and place."""


class Blocks:
    """Invariant: ``runs`` knows each tier as the holder of exactly the placed blocks that have a count in one of its
    columns, whose bits are in ``masks``. Owner: the process that follows the engines."""

    def __init__(self, runs: Runs, first_holder: int, masks: Sequence[int]) -> None:
        self.tables: dict[int, Table] = {}
        """By tokens to a block."""
        self.tokens = [0] * TIERS
        """Held in each tier."""
        self._runs = runs
        self._first_holder = first_holder
        self._masks = masks

    def __len__(self) -> int:
        return sum([len(table) for table in self.tables.values()])

    def has_room(self, size: int, count: int) -> bool:
        """Whether ``count`` blocks of ``size`` tokens more may be kept."""
        if size not in self.tables and len(self.tables) >= MOST_SIZES:
            self.tables = {known: table for known, table in self.tables.items() if table}
            if len(self.tables) >= MOST_SIZES:
                return False
        tokens = sum([len(table) * known for known, table in self.tables.items()])
        return len(self) + count <= MOST_BLOCKS and tokens + count * size <= MOST_TOKENS

    def table(self, size: int) -> Table:
        """That of blocks of ``size`` tokens."""
        table = self.tables.get(size)
        if table is None:
            table = self.tables[size] = {}
        return table

    def placed(self, name: int) -> tuple[int, int]:
        """The tokens and the number of a block that has a place; zeros for an unknown one."""
        for size, table in self.tables.items():
            value = table.get(name, 0)
            if value & RUN:
                return size, value
        return 0, 0

    def place_of(self, value: int) -> tuple[Run, int]:
        """Where a block lies that has a place: its run, or one behind, and its depth."""
        return self._runs.run((value & RUN) >> DEPTH_BITS), value & DEPTH

    def find(self, size: int, parent: int) -> tuple[Run, int] | None:
        """Where the block lies that others of ``size`` tokens build upon; None where nobody knows."""
        value = self.tables.get(size, {}).get(parent, 0)
        if value & RUN:
            return self.place_of(value)
        for other, table in self.tables.items():
            value = table.get(parent, 0)
            blocks, rest = divmod(((value & DEPTH) + 1) * other, size)
            if value & RUN and other != size and not rest:
                return self.in_blocks_of(size, value), blocks - 1
        return None

    def in_blocks_of(self, size: int, value: int) -> Run:
        """The run in which the prompt up to a block that has a place ends, cut into blocks of ``size``; whoever
        calls says who holds the last of them, and has the runs settled."""
        identity, data = self._runs.path(*self.place_of(value))
        return self._runs.lay(self._runs.root(size, identity), -1, data)[-1].run

    def add(self, size: int, table: Table, name: int, value: int, column: Column) -> None:
        """Announce a block, whose number is ``value``, once more."""
        tier = column.tier
        after = table[name] = column.more(value)
        if value & RUN and not value & self._masks[tier]:
            self._enter(size, after, tier)

    def take(self, size: int, table: Table, name: int, value: int, less: int, tier: int) -> None:
        """Take announcements back, which are bits of ``value``."""
        after = value - less
        if value & RUN and not after & self._masks[tier]:
            self._leave(size, value, tier)
        if after >> COUNTS_AT:
            table[name] = after
            return
        del table[name]
        if value & RUN:
            self._runs.name(self.place_of(value)[0], -1)

    def place_new(self, size: int, table: Table, names: Sequence[int], place: Place, column: Column) -> None:
        """Give blocks that nobody has heard of their place, and announce them."""
        first = column.one | place.run.number << DEPTH_BITS | place.depth
        table.update(zip(names, range(first, first + place.blocks), strict=True))
        place.run.named += place.blocks
        tier = column.tier
        self.tokens[tier] += place.blocks * size
        self._runs.hold(place.run, place.depth, place.blocks, self._first_holder + tier)

    def place(self, size: int, table: Table, name: int, value: int, run: Run, depth: int) -> int:
        """Give a block with the counts of ``value`` its place, unless it has one; returns its number."""
        if not value & RUN:
            value |= run.number << DEPTH_BITS | depth
            run.named += 1
            for tier in range(TIERS):
                if value & self._masks[tier]:
                    self._enter(size, value, tier)
        table[name] = value
        return value

    def having(self, counts: int) -> Iterator[tuple[int, Table, Iterable[tuple[int, int]]]]:
        """By size, the blocks with a count in one of the bits ``counts``, the last announced first."""
        for size, table in self.tables.items():
            yield size, table, [(name, value) for name, value in reversed(table.items()) if value & counts]

    def forget(self) -> None:
        """Hold nothing any more; the last call."""
        for size, table in self.tables.items():
            for value in reversed(table.values()):
                for tier in range(TIERS):
                    if value & self._masks[tier]:
                        self._leave(size, value, tier)
                if value & RUN:
                    self._runs.name(self.place_of(value)[0], -1)

    def _enter(self, size: int, value: int, tier: int) -> None:
        self.tokens[tier] += size
        run, depth = self.place_of(value)
        self._runs.hold(run, depth, 1, self._first_holder + tier)

    def _leave(self, size: int, value: int, tier: int) -> None:
        if value & RUN:
            self.tokens[tier] -= size
            run, depth = self.place_of(value)
            self._runs.release(run, depth, self._first_holder + tier)
