"""The blocks of one endpoint by the hashes that its engine gives them: how often each was announced, and its place.

For each block size and each hash (a *name*) there is one number. It packs how often the block was announced in each
*column* (rank, medium and cache group; 16 bits each) and its place among the runs. A block leaves a tier when it has
been removed as often as it was announced there. A block without a place is counted in the same way.

Cost: one dictionary entry, about 140 bytes, per block, however many tiers it is in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from epp.kvevents.follower.columns import COUNTS_AT, DEPTH, DEPTH_BITS, RUN, TIERS, Column
from epp.kvevents.follower.run import Run, RunSpan
from epp.kvevents.follower.runs import Runs

MOST_BLOCKS = 4_000_000
"""Maximum number of blocks of one endpoint: 64 million tokens in blocks of 16."""
MOST_TOKENS = 1 << 27
"""Maximum number of tokens of one endpoint, at 4 bytes each. A guess: what it would keep in terabytes of storage."""
MOST_SIZES = 8
"""Maximum number of block sizes per endpoint. A guess: GPU memory has one size, and each tier below perhaps another."""

Table: TypeAlias = dict[int, int]
"""Maps the name of a block to its counts and place, packed into one number."""


class Blocks:
    """The announced blocks of one endpoint, with their counts and places.

    Invariant: ``runs`` records each tier as the holder of exactly those placed blocks that have a count in one of the
    tier's columns; ``masks`` has the bits of these columns. Owner: the process that follows the engines.
    """

    def __init__(self, runs: Runs, first_holder: int, masks: Sequence[int]) -> None:
        self.tables: dict[int, Table] = {}
        """The tables by block size, in tokens."""
        self.tokens = [0] * TIERS
        """How many tokens are held in each tier."""
        self._runs = runs
        self._first_holder = first_holder
        self._masks = masks

    def __len__(self) -> int:
        return sum([len(table) for table in self.tables.values()])

    def has_room(self, size: int, count: int) -> bool:
        """Return whether ``count`` more blocks of ``size`` tokens fit, after dropping empty tables if needed."""
        if size not in self.tables and len(self.tables) >= MOST_SIZES:
            self.tables = {known: table for known, table in self.tables.items() if table}
            if len(self.tables) >= MOST_SIZES:
                return False
        tokens = sum([len(table) * known for known, table in self.tables.items()])
        return len(self) + count <= MOST_BLOCKS and tokens + count * size <= MOST_TOKENS

    def table(self, size: int) -> Table:
        """Return the table of blocks of ``size`` tokens."""
        table = self.tables.get(size)
        if table is None:
            table = self.tables[size] = {}
        return table

    def placed(self, name: int) -> tuple[int, int]:
        """Return the size and the number of the block ``name`` if it has a place, else zeros."""
        for size, table in self.tables.items():
            value = table.get(name, 0)
            if value & RUN:
                return size, value
        return 0, 0

    def place_of(self, value: int) -> tuple[Run, int]:
        """Return the place of a placed block, as a run and a depth. The block may lie in a run above that one."""
        return self._runs.run((value & RUN) >> DEPTH_BITS), value & DEPTH

    def find(self, size: int, parent: int) -> tuple[Run, int] | None:
        """Return the place of the block ``parent``: a run and a depth in blocks of ``size`` tokens; None if unknown."""
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
        """Return the run where a placed block's prompt ends when it is cut into blocks of ``size``.

        ``value`` is that block's number. The caller records who holds the last of the new blocks, and then has the runs
        settled.
        """
        identity, data = self._runs.path(*self.place_of(value))
        return self._runs.lay(self._runs.root(size, identity), -1, data)[-1].run

    def add(self, size: int, table: Table, name: int, value: int, column: Column) -> None:
        """Count one more announcement of a block, whose number is ``value``."""
        tier = column.tier
        after = table[name] = column.more(value)
        if value & RUN and not value & self._masks[tier]:
            self._enter(size, after, tier)

    def take(self, size: int, table: Table, name: int, value: int, less: int, tier: int) -> None:
        """Take announcements back; ``less`` is what they added to ``value``."""
        after = value - less
        if value & RUN and not after & self._masks[tier]:
            self._leave(size, value, tier)
        if after >> COUNTS_AT:
            table[name] = after
            return
        del table[name]
        if value & RUN:
            self._runs.name(self.place_of(value)[0], -1)

    def place_new(self, size: int, table: Table, names: Sequence[int], place: RunSpan, column: Column) -> None:
        """Give blocks that were never announced before their place, and count their announcement."""
        first = column.one | place.run.number << DEPTH_BITS | place.depth
        table.update(zip(names, range(first, first + place.blocks), strict=True))
        place.run.named += place.blocks
        tier = column.tier
        self.tokens[tier] += place.blocks * size
        self._runs.hold(place.run, place.depth, place.blocks, self._first_holder + tier)

    def place(self, size: int, table: Table, name: int, value: int, run: Run, depth: int) -> int:
        """Give the block a place, unless ``value`` has one; return its number."""
        if not value & RUN:
            value |= run.number << DEPTH_BITS | depth
            run.named += 1
            for tier in range(TIERS):
                if value & self._masks[tier]:
                    self._enter(size, value, tier)
        table[name] = value
        return value

    def having(self, counts: int) -> Iterator[tuple[int, Table, Iterable[tuple[int, int]]]]:
        """Yield, by block size, the blocks with a count in the bits ``counts``, the last announced first."""
        for size, table in self.tables.items():
            yield size, table, [(name, value) for name, value in reversed(table.items()) if value & counts]

    def forget(self) -> None:
        """Release all blocks; must be the last call."""
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
