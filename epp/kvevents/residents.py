"""What one endpoint holds, by the hashes that its engine gives its blocks.

The engine's hashes are names and nothing more: which block a name means follows from the tokens of the event that said
it first, and what it builds upon. So no seed and no algorithm has to be known, and endpoints may differ in both.

For each size of block and each hash there is one number: how often it was announced in each *column* (rank, medium and
cache group; 16 bits each), and its place among the runs. A block leaves a tier when it has been removed as often as it
was announced there. What cannot be placed yet, as it has no tokens or nothing is known of what it builds upon, is
counted in the same way and placed when that becomes known.

Cost: one dictionary entry, about 140 bytes, for a block in however many tiers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from epp.kvevents.block_data import Malformed, salt_and_data
from epp.kvevents.columns import COUNTS_AT, DEPTH, DEPTH_BITS, MOST_DEPTH, RUN, TIERS, Column, Columns
from epp.kvevents.decoding import BlockRemoved, BlockStored, Event, Hash, hash_of
from epp.kvevents.run import Place, Run
from epp.kvevents.runs import Runs
from epp.kvevents.tally import Tally
from epp.kvevents.waiting import Waiting, WaitingBlocks
from epp.parsers.identity import TOKENS, identity

KINDS = frozenset((None, "full_attention", "mla_attention", "sink_full_attention"))
"""Of cache groups: those whose blocks are found by their whole prefix."""
MOST_BLOCKS = 4_000_000
"""Of one endpoint: 64 million tokens in blocks of 16."""
MOST_NAMELESS = 200_000
"""Blocks of one endpoint that are known by name only."""


class Residents:
    """The blocks of one source of events. Owner: the process that follows the engines.

    Invariant: ``runs`` knows each tier as the holder of exactly the placed blocks that have a count in one of its
    columns.
    """

    def __init__(self, runs: Runs, source: int, tally: Tally, note: Callable[[str, str], None]) -> None:
        """``note(kind, value)`` is told of the media, cache groups and adapters met, as often as they are."""
        self.known = 0
        """Of tiers, one bit each: whether everything in it has been announced."""
        self.tokens = [0] * TIERS
        """Held in each tier."""
        self._runs = runs
        self._first_holder = source * TIERS
        self._tally = tally
        self._note = note
        self._reset()

    def _reset(self) -> None:
        self._tables: dict[int, dict[int, int]] = {}  # by tokens to a block, then by hash: counts and place
        self._nameless: dict[int, int] = {}  # by hash: counts of what came without tokens, and is in no table
        self._waiting = WaitingBlocks()
        self._columns = Columns()
        self._masks = self._columns.masks
        self._ignored: set[int] = set()  # cache groups
        self.tokens = [0] * TIERS

    def __len__(self) -> int:
        """Hashes."""
        return sum([len(table) for table in self._tables.values()]) + len(self._nameless)

    def apply(self, events: Iterable[Event], rank: int = 0) -> None:
        """Follow one batch, in order."""
        for event in events:
            try:
                if isinstance(event, BlockStored):
                    self._stored(event, rank)
                elif isinstance(event, BlockRemoved):
                    self._removed(event.block_hashes, event.medium, event.group_idx or 0, rank)
                else:
                    self._cleared(rank)
            except Malformed:
                self._tally.malformed += 1

    def forget(self) -> None:
        """Nothing is known any more."""
        for size, table in self._tables.items():
            for value in reversed(table.values()):
                for tier in range(TIERS):
                    if value & self._masks[tier]:
                        self._leave(size, value, tier)
                if value & RUN:
                    self._runs.name(self._runs.run((value & RUN) >> DEPTH_BITS), -1)
        self._reset()
        self.known = 0

    # Announcements

    def _stored(self, event: BlockStored, rank: int) -> None:
        group = event.group_idx or 0
        if event.kv_cache_spec_kind not in KINDS:
            self._ignored.add(group)
            self._note("group", str(event.kv_cache_spec_kind))
        column, count = self._column(rank, event.medium, group), len(event.block_hashes)
        if column is None or group in self._ignored:
            self._tally.skipped += count
            return
        if len(self) + count > MOST_BLOCKS:
            self._tally.over_limit += count
            return
        hashes = [hash_of(each) for each in event.block_hashes]
        self._tally.stored += count
        if not event.token_ids:
            self._stored_nameless(hashes, column)
            return
        size, lora = event.block_size, event.lora_name or ""
        if lora:
            self._note("lora", lora)
        salt, data = salt_and_data(event, lora)
        if event.parent_block_hash is None:
            self._place(size, hashes, data, self._runs.root(size, identity(TOKENS, lora, salt)), -1, column)
            return
        parent = hash_of(event.parent_block_hash)
        found = self._find(size, parent)
        if found is not None:
            self._place(size, hashes, data, *found, column)
        elif not self._waiting.add(parent, Waiting(hashes, data, size), self._is_here):
            self._tally.over_limit += count
        else:
            table = self._tables.setdefault(size, {})
            for each in hashes:
                self._add(size, table, each, table.get(each) or self._nameless.pop(each, 0), column)

    def _stored_nameless(self, hashes: Sequence[int], column: Column) -> None:
        """Blocks of which only the hash is said: those that are known by it, or will be."""
        for each in hashes:
            for size, table in self._tables.items():
                value = table.get(each)
                if value is not None:
                    self._add(size, table, each, value, column)
                    break
            else:
                if len(self._nameless) < MOST_NAMELESS:
                    self._nameless[each] = column.more(self._nameless.get(each, 0))
                else:
                    self._tally.over_limit += 1

    def _place(self, size: int, hashes: list[int], data: bytes, run: Run, depth: int, column: Column | None) -> None:
        """Put blocks behind the one at ``depth`` of ``run``, and announce them in ``column``; with none, they have been
        announced before, if they are still there."""
        if depth + len(hashes) >= MOST_DEPTH:
            raise Malformed(f"a prompt of more than {MOST_DEPTH} blocks")
        table = self._tables.setdefault(size, {})
        plain = column is not None and not self._nameless and table.keys().isdisjoint(hashes)
        plain = plain and len(set(hashes)) == len(hashes)
        begin = 0
        places = self._runs.lay(run, depth, data)
        for place in places:
            of_place = hashes if len(places) == 1 else hashes[begin : begin + place.blocks]
            begin += place.blocks
            if plain and column is not None:
                self._place_new(size, table, of_place, place, column)
            else:
                self._place_each(size, table, of_place, place, column)
        self._runs.settle(places)
        if self._waiting:
            for each in hashes:
                self._follow(each)

    def _place_new(self, size: int, table: dict[int, int], hashes: list[int], place: Place, column: Column) -> None:
        """Nobody has heard of any of ``hashes``."""
        first = column.one | place.run.number << DEPTH_BITS | place.depth
        table.update(zip(hashes, range(first, first + place.blocks), strict=True))
        place.run.named += place.blocks
        tier = column.tier
        self.tokens[tier] += place.blocks * size
        self._runs.hold(place.run, place.depth, place.blocks, self._first_holder + tier)

    def _place_each(
        self, size: int, table: dict[int, int], hashes: list[int], place: Place, column: Column | None
    ) -> None:
        for n, each in enumerate(hashes):
            value = table.get(each)
            if value is None:
                value = self._nameless.pop(each, 0)
                if not value and column is None:
                    continue  # removed while it waited
            if not value & RUN:
                value |= place.run.number << DEPTH_BITS | (place.depth + n)
                place.run.named += 1
                for tier in range(TIERS):
                    if value & self._masks[tier]:
                        self._enter(size, value, tier)
            if column is None:
                table[each] = value
            else:
                self._add(size, table, each, value, column)

    def _follow(self, parent: int) -> None:
        """Place what waited for ``parent``, and what waited for that."""
        for waiting in self._waiting.pop(parent):
            found = self._find(waiting.block_tokens, parent)
            if found is not None:
                self._place(waiting.block_tokens, waiting.hashes, waiting.data, *found, None)

    def _find(self, size: int, parent: int) -> tuple[Run, int] | None:
        """Where the block lies that others of ``size`` tokens build upon; None where nobody knows."""
        value = self._tables.get(size, {}).get(parent, 0)
        if value & RUN:
            return self._runs.run((value & RUN) >> DEPTH_BITS), value & DEPTH
        for other, table in self._tables.items():
            value = table.get(parent, 0)
            blocks, rest = divmod(((value & DEPTH) + 1) * other, size)
            if value & RUN and other != size and not rest:
                name, data = self._runs.path(self._runs.run((value & RUN) >> DEPTH_BITS), value & DEPTH)
                return self._runs.lay(self._runs.root(size, name), -1, data)[-1].run, blocks - 1
        return None

    def _is_here(self, waiting: Waiting) -> bool:
        return not self._tables[waiting.block_tokens].keys().isdisjoint(waiting.hashes)

    # Removals

    def _removed(self, hashes: Sequence[Hash], medium: str | None, group: int, rank: int) -> None:
        column = self._column(rank, medium, group)
        if column is None or group in self._ignored:
            self._tally.skipped += len(hashes)
            return
        self._tally.removed += len(hashes)
        counts = column.counts
        for name in hashes:
            each = hash_of(name)
            for size, table in self._tables.items():
                value = table.get(each, 0)
                if value & counts:
                    self._take(size, table, each, value, column.one, column.tier)
                    break
            else:
                value = self._nameless.get(each, 0)
                if not value & counts:
                    self._tally.unknown_removals += 1
                elif value == column.one:
                    del self._nameless[each]
                else:
                    self._nameless[each] = value - column.one

    def _cleared(self, rank: int) -> None:
        """All that this rank has announced in GPU memory is gone; what is in other tiers stays."""
        self._tally.cleared += 1
        of_gpu = self._columns.of_tier(0)
        for counts in [column.counts for column in of_gpu if column.rank == rank]:
            for size, table in self._tables.items():
                for each, value in reversed(list(table.items())):
                    if value & counts:
                        self._take(size, table, each, value, value & counts, 0)
            for each, value in list(self._nameless.items()):
                self._nameless[each] = value & ~counts
                if not self._nameless[each]:
                    del self._nameless[each]
        if all(column.rank == rank for column in of_gpu):
            self.known |= 1

    def _column(self, rank: int, medium: str | None, group: int) -> Column | None:
        column = self._columns.column(rank, medium, group)
        if column is None:
            self._note("medium", medium or "")
        return column

    def _add(self, size: int, table: dict[int, int], each: int, value: int, column: Column) -> None:
        tier = column.tier
        after = table[each] = column.more(value)
        if value & RUN and not value & self._masks[tier]:
            self._enter(size, after, tier)

    def _take(self, size: int, table: dict[int, int], each: int, value: int, less: int, tier: int) -> None:
        after = value - less
        if value & RUN and not after & self._masks[tier]:
            self._leave(size, value, tier)
        if after >> COUNTS_AT:
            table[each] = after
            return
        del table[each]
        if value & RUN:
            self._runs.name(self._runs.run((value & RUN) >> DEPTH_BITS), -1)

    def _enter(self, size: int, value: int, tier: int) -> None:
        self.tokens[tier] += size
        run = self._runs.run((value & RUN) >> DEPTH_BITS)
        self._runs.hold(run, value & DEPTH, 1, self._first_holder + tier)

    def _leave(self, size: int, value: int, tier: int) -> None:
        if value & RUN:
            self.tokens[tier] -= size
            run = self._runs.run((value & RUN) >> DEPTH_BITS)
            self._runs.release(run, value & DEPTH, self._first_holder + tier)
