"""The blocks that one endpoint holds, according to its events.

The engine's hashes are names and nothing more. Which block a name stands for follows from the tokens of the event that
announced it first, and from the block's parent. So neither the seed nor the hash algorithm has to be known, and
endpoints may differ in both.

A block without tokens, or with an unknown parent, has no place yet (``blocks``). It is counted, and placed once the
missing part is known. A chunk that comes without tokens is named by the block that it ends with. It counts as one block
of its own size, whose tokens are those that lead to that block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from epp.kvevents.follower.block_data import MOST_BLOCK_TOKENS, Malformed, salt_and_data
from epp.kvevents.follower.blocks import MOST_BLOCKS, Blocks, Table
from epp.kvevents.follower.columns import DEPTH, MOST_DEPTH, TIERS, Column, Columns
from epp.kvevents.follower.decoding import BlockRemoved, BlockStored, Event, Hash, hash_of
from epp.kvevents.follower.pending import HashOnlyBlocks, WaitingBlocks, WaitingEvent
from epp.kvevents.follower.run import Run, RunSpan
from epp.kvevents.follower.runs import Runs
from epp.kvevents.follower.tally import Tally
from epp.parsers.identity import TOKENS, identity

KINDS = frozenset((None, "full_attention", "mla_attention", "sink_full_attention"))
"""The kinds of cache groups whose blocks are found by their whole prefix."""
MOST_IGNORED = 1000
"""Maximum number of other cache groups that are remembered per endpoint."""


class Residents:
    """All blocks of one endpoint, placed or not. Owner: the process that follows the engines."""

    def __init__(self, runs: Runs, source: int, tally: Tally, note: Callable[[str, str], None]) -> None:
        """Call ``note(kind, value)`` for each unknown medium, skipped cache group and adapter, each time it occurs."""
        self.known = 0
        """One bit per tier: whether everything in that tier has been announced."""
        self._runs = runs
        self._first_holder = source * TIERS
        self._tally = tally
        self._note = note
        self._reset()

    def _reset(self) -> None:
        self._columns = Columns()
        self._blocks = Blocks(self._runs, self._first_holder, self._columns.masks)
        self._hash_only = HashOnlyBlocks()
        self._waiting = WaitingBlocks()
        self._ignored: set[int] = set()  # the numbers of cache groups

    @property
    def tokens(self) -> list[int]:
        """How many tokens are held in each tier."""
        return self._blocks.tokens

    def __len__(self) -> int:
        """Return the number of hashes, placed or not."""
        return len(self._blocks) + len(self._hash_only)

    def apply(self, events: Iterable[Event], rank: int = 0) -> None:
        """Apply the events of one batch, in order."""
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
        """Forget all blocks of the endpoint."""
        self._blocks.forget()
        self._reset()
        self.known = 0

    # Announcements

    def _stored(self, event: BlockStored, rank: int) -> None:
        group, count = event.group_idx or 0, len(event.block_hashes)
        if event.kv_cache_spec_kind not in KINDS:
            if len(self._ignored) < MOST_IGNORED:
                self._ignored.add(group)
            self._note("group", str(event.kv_cache_spec_kind)[:256])
            self._tally.skipped += count
            return
        column = self._column(rank, event.medium, group)
        if column is None or group in self._ignored:
            self._tally.skipped += count
            return
        hashes = [hash_of(each) for each in event.block_hashes]
        self._tally.stored += count
        if not event.token_ids:
            self._stored_hashes(hashes, column, event.block_size if 0 < event.block_size <= MOST_BLOCK_TOKENS else 0)
            return
        size, lora = event.block_size, event.lora_name or ""
        salt, data = salt_and_data(event, lora)
        if not self._blocks.has_room(size, count):
            self._tally.over_limit += count
            return
        if lora:
            self._note("lora", lora)
        if event.parent_block_hash is None:
            _check_depth(-1, count)
            self._place(size, hashes, data, self._runs.root(size, identity(TOKENS, lora, salt)), -1, column)
            return
        parent = hash_of(event.parent_block_hash)
        found = self._blocks.find(size, parent)
        if found is not None:
            self._place(size, hashes, data, *found, column)
        elif not self._waiting.add(parent, WaitingEvent(hashes, data, size), self._is_here):
            self._tally.over_limit += count
        else:
            table = self._blocks.table(size)
            for each in hashes:
                self._blocks.add(size, table, each, table.get(each) or self._hash_only.take(each), column)

    def _stored_hashes(self, hashes: Sequence[int], column: Column, chunk_tokens: int) -> None:
        """Count announcements that carry hashes only, for blocks that are known already or will be.

        With ``chunk_tokens``, each hash names the chunk of that size which ends with the block.
        """
        for each in hashes:
            for size, table in self._blocks.tables.items():
                value = table.get(each)
                if value is not None and chunk_tokens in (0, size):
                    self._blocks.add(size, table, each, value, column)
                    break
            else:
                if len(self) >= MOST_BLOCKS or not self._hash_only.add(each, column, chunk_tokens):
                    self._tally.over_limit += 1
                elif chunk_tokens:
                    self._complete(each)

    def _place(self, size: int, hashes: list[int], data: bytes, run: Run, depth: int, column: Column) -> None:
        """Place blocks behind the one at ``depth`` of ``run``, and count their announcement in ``column``.

        Then place the blocks that were waiting for them, and in turn those that were waiting for these.
        """
        _check_depth(depth, len(hashes))
        self._lay(size, hashes, data, run, depth, column)
        reached = [hashes] if self._waiting or self._hash_only.has_chunks else []
        while reached:
            for each in reached.pop():
                if self._hash_only.has_chunk(each):
                    self._complete(each)
                for waiting in self._waiting.pop(each):
                    found = self._blocks.find(waiting.block_tokens, each)
                    if found is None:
                        continue
                    if found[1] + len(waiting.hashes) >= MOST_DEPTH:
                        self._tally.malformed += 1
                        continue
                    self._lay(waiting.block_tokens, waiting.hashes, waiting.data, *found, None)
                    reached.append(waiting.hashes)

    def _lay(self, size: int, hashes: list[int], data: bytes, run: Run, depth: int, column: Column | None) -> None:
        """Place these blocks alone.

        Without a column, they were announced before, and only those that are still there are placed.
        """
        table = self._blocks.table(size)
        plain = column is not None and not self._hash_only and table.keys().isdisjoint(hashes)
        plain = plain and len(set(hashes)) == len(hashes)
        begin = 0
        places = self._runs.lay(run, depth, data)
        for place in places:
            of_place = hashes if len(places) == 1 else hashes[begin : begin + place.blocks]
            begin += place.blocks
            if plain and column is not None:
                self._blocks.place_new(size, table, of_place, place, column)
            else:
                self._lay_each(size, table, of_place, place, column)
        self._runs.settle(places)

    def _lay_each(self, size: int, table: Table, hashes: list[int], place: RunSpan, column: Column | None) -> None:
        for n, each in enumerate(hashes):
            value = table.get(each)
            if value is None:
                value = self._hash_only.take(each)
                if not value and column is None:
                    continue  # it was removed while it waited
            value = self._blocks.place(size, table, each, value, place.run, place.depth + n)
            if column is not None:
                self._blocks.add(size, table, each, value, column)

    def _complete(self, name: int) -> None:
        """Place the chunk that ends with the block ``name``, if that block is placed."""
        size, value = self._blocks.placed(name)
        if not size:
            return
        counts, chunk_tokens = self._hash_only.take_chunk(name)
        chunks, rest = divmod(((value & DEPTH) + 1) * size, chunk_tokens)
        if rest or name in self._blocks.tables.get(chunk_tokens, ()) or not self._blocks.has_room(chunk_tokens, 1):
            table = self._blocks.table(size)
            for column in self._columns.announced(counts):  # no chunk of that size ends here
                self._blocks.add(size, table, name, table[name], column)
            return
        run = self._blocks.in_blocks_of(chunk_tokens, value)
        self._blocks.place(chunk_tokens, self._blocks.table(chunk_tokens), name, counts, run, chunks - 1)
        self._runs.settle([RunSpan(run, chunks - 1, 1)])

    def _is_here(self, waiting: WaitingEvent) -> bool:
        return not self._blocks.table(waiting.block_tokens).keys().isdisjoint(waiting.hashes)

    # Removals

    def _removed(self, hashes: Sequence[Hash], medium: str | None, group: int, rank: int) -> None:
        column = self._column(rank, medium, group)
        if column is None or group in self._ignored:
            self._tally.skipped += len(hashes)
            return
        self._tally.removed += len(hashes)
        counts, blocks = column.counts, self._blocks
        for name in hashes:
            each = hash_of(name)
            for size, table in blocks.tables.items():
                value = table.get(each, 0)
                if value & counts:
                    blocks.take(size, table, each, value, column.one, column.tier)
                    break
            else:
                self._tally.unknown_removals += not self._hash_only.remove(each, column)

    def _cleared(self, rank: int) -> None:
        """Remove all that this rank has announced in GPU memory; other tiers keep theirs."""
        self._tally.cleared += 1
        of_gpu = self._columns.of_tier(0)
        for counts in [column.counts for column in of_gpu if column.rank == rank]:
            for size, table, having in self._blocks.having(counts):
                for each, value in having:
                    self._blocks.take(size, table, each, value, value & counts, 0)
            self._hash_only.clear(counts)
        if all(column.rank == rank for column in of_gpu):
            self.known |= 1

    def _column(self, rank: int, medium: str | None, group: int) -> Column | None:
        column = self._columns.column(rank, medium, group)
        if column is None:
            self._note("medium", (medium or "")[:256])
        return column


def _check_depth(depth: int, blocks: int) -> None:
    """Check that ``blocks`` blocks may follow the one at ``depth``. Raises: Malformed."""
    if depth + blocks >= MOST_DEPTH:
        raise Malformed(f"a prompt of more than {MOST_DEPTH} blocks")
