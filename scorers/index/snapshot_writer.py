"""Save an index as plain data in small steps, so that requests in between do not have to wait.

For each endpoint, the snapshot has what each tier held when the endpoint's turn began and still held when the run was
read. Runs that are split, joined or extended in the meantime are saved as they then are, so that each endpoint's part
is consistent in itself, and what other endpoints do in the meantime takes nothing away from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from scorers.base import Slot
from scorers.index.identity import DIGEST_BYTES
from scorers.index.index import PrefixIndex
from scorers.index.recency import Recency
from scorers.index.snapshot import NO_FLOW, ROOT, SavedRuns, Snapshot
from scorers.index.stretch import Stretch
from scorers.index.tree import Node

MAX_ENDPOINT_BLOCKS = 4_000_000
"""The most recent blocks that are kept of one endpoint: 256 million tokens. A guess, far above any engine's memory."""


class SnapshotBuilder:
    """A snapshot in the making. Owner: the event loop."""

    def __init__(self, index: PrefixIndex, now: float, most_blocks: int = MAX_ENDPOINT_BLOCKS) -> None:
        """Begin a snapshot: ages are relative to ``now``, and only an endpoint's newest ``most_blocks`` are saved."""
        self._index = index
        self._now = now
        self._most_blocks = most_blocks
        self._places: dict[tuple[int, bytes], int] = {}  # of saved runs, by the run before and the last digest
        self._parents: list[int] = []
        self._digests: list[bytes] = []
        self._flows: dict[str, int] = {}
        self._endpoints: dict[str, SavedRuns] = {}

    def snapshot(self) -> Snapshot:
        """Return everything that was saved so far."""
        index = self._index
        return Snapshot(
            index.secret, index.block_tokens, index.tiers, self._parents, self._digests, list(self._flows),
            self._endpoints,
        )  # fmt: skip

    def steps(self, address: str, slot: Slot) -> Iterator[None]:
        """Save what ``slot``, the endpoint at ``address``, holds; iterate to proceed.

        If the endpoint is removed meanwhile, nothing of it is saved.
        """
        recency = self._index.recency(slot)
        if recency is None or not recency.used:
            return
        saved = _Runs(recency, self._now)
        stretches = list(recency)
        listed = set(stretches)
        for stretch in stretches:
            yield
            if self._index.recency(slot) is not recency:
                return
            if not all(self._save(each, saved) for each in _as_it_is_now(stretch, recency, listed)):
                break
        if saved.runs:
            self._endpoints[address] = saved.saved()

    def _save(self, stretch: Stretch, saved: _Runs) -> bool:
        """Save what is still held of ``stretch``, and all that comes before it; False if that would be too much."""
        pieces = saved.missing(stretch)
        for piece in pieces:
            if saved.blocks + piece.blocks > self._most_blocks:
                return False
            place = self._place(saved.place_before(piece), piece.digests)
            saved.add(piece, place, self._flows)
        return True

    def _place(self, parent: int, digests: bytes) -> int:
        name = parent, digests[-DIGEST_BYTES:]
        place = self._places.get(name)
        if place is None:
            place = self._places[name] = len(self._parents)
            self._parents.append(parent)
            self._digests.append(digests)
        return place


class _Piece(NamedTuple):
    """A stretch from the block ``start`` of its run on: what was not saved before."""

    stretch: Stretch
    start: int

    @property
    def blocks(self) -> int:
        return self.stretch.end - self.start

    @property
    def digests(self) -> bytes:
        digests = self.stretch.node.digests
        return digests[self.start * DIGEST_BYTES : self.stretch.end * DIGEST_BYTES]

    @property
    def first(self) -> bytes:
        """The digest of the first block."""
        return _digest(self.stretch.node, self.start + 1)

    @property
    def before(self) -> bytes:
        """The digest of the block before the piece; empty at the beginning of a prompt."""
        return _digest(self.stretch.node, self.start)


def _digest(node: Node, blocks: int) -> bytes:
    """Return the digest of what ends with the first ``blocks`` of ``node``; empty for nothing."""
    if blocks:
        return node.digests[(blocks - 1) * DIGEST_BYTES : blocks * DIGEST_BYTES]
    return b"" if node.parent is None else node.parent.digests[-DIGEST_BYTES:]


def _as_it_is_now(stretch: Stretch, recency: Recency, listed: set[Stretch]) -> Iterator[Stretch]:
    """Yield the stretches that hold the blocks of ``stretch`` now: one that it was united with, or the parts of it.

    Those in ``listed`` have their own turn.
    """
    while not stretch.tiers and stretch.above is not None:
        stretch = stretch.above
    now = stretch if stretch.tiers else recency.deepest_of(stretch.node)
    while now is not None:
        yield now
        older = now.older
        is_cut_off = older.used_s == now.used_s and (
            older.above is now or (not older.start and older.tiers and older.node.parent is now.node)
        )
        now = older if is_cut_off and older not in listed else None


class _Runs:
    """The runs of one endpoint saved so far.

    A digest names everything up to its block, so a saved run is found by its last digest, however the tree was changed
    since.
    """

    def __init__(self, recency: Recency, now: float) -> None:
        self.runs: list[int] = []
        self.blocks = 0
        self._recency = recency
        self._now = now
        self._places = {b"": ROOT}  # by last digest
        self._begun = set[tuple[int, bytes]]()  # of each run, the place before it and the first digest
        self._gated = recency.gated
        self._open = recency.every_tier  # the tiers whose end was not reached yet
        self._used = [0] * len(recency.cuts)
        self._holders = {ROOT: self._gated}  # by position: the gated tiers that hold the run
        self._payers: list[int] = []
        self._ages: list[float] = []
        self._held_by: list[int] = []

    def missing(self, stretch: Stretch) -> list[_Piece]:
        """Return what is not saved yet of ``stretch`` and of everything before it, in the order of the prompt.

        Usually that is the stretch. What comes before it is newer, so it is saved, unless it was used again since.
        """
        pieces: list[_Piece] = []
        held: Stretch | None = stretch if stretch.tiers else None
        while held is not None:
            piece = _Piece(held, held.start)
            if piece.before in self._places and not self._is_begun(piece):
                pieces.append(piece)
                break
            saved = self._saved_of(held)
            if saved < held.end:
                pieces.append(_Piece(held, saved))
            if saved > held.start or piece.before in self._places:
                break
            held = held.above or self._recency.deepest_of(held.node.parent)
        if pieces and self._is_begun(pieces[-1]):
            return []
        return pieces[::-1]

    def add(self, piece: _Piece, place: int, flows: dict[str, int]) -> None:
        """Save the next piece, which is held and older than those before it.

        What enters a tier meanwhile is left out.
        """
        recency, stretch = self._recency, piece.stretch
        parent = self.place_before(piece)
        self._begun.add((parent, piece.first))
        self._places[_digest(stretch.node, stretch.end)] = place
        self.runs.append(place)
        self.blocks += piece.blocks
        age = max(0.0, self._now - stretch.used_s)
        self._ages.append(max(age, self._ages[-1]) if self._ages else age)
        before = piece.start - stretch.start
        kept = [max(0, cut.kept_of(stretch) - before) if cut.mark & self._open else 0 for cut in recency.cuts]
        some = sum([cut.mark for cut, blocks in zip(recency.cuts, kept, strict=True) if blocks])
        full = sum([cut.mark for cut, blocks in zip(recency.cuts, kept, strict=True) if blocks == piece.blocks])
        if self._gated:
            some &= ~self._gated | self._holders[parent]
            holders = self._holders[place] = some & self._gated
            self._held_by.append(holders)
        for tier, blocks in enumerate(kept):
            if some >> tier & 1:
                self._used[tier] += blocks
        self._open &= full | (self._gated & ~some)  # behind its end a tier holds only what it got since
        if recency.bounds_flows:
            flow = recency.flow_of(stretch)
            self._payers.append(NO_FLOW if flow is None else flows.setdefault(flow, len(flows)))

    def place_before(self, piece: _Piece) -> int:
        """Return the position of the saved run that the piece continues."""
        return self._places[piece.before]

    def saved(self) -> SavedRuns:
        """Return everything saved of the endpoint."""
        return SavedRuns(tuple(self._used), self.runs, self._payers, self._ages, self._gated, self._held_by)

    def _is_begun(self, piece: _Piece) -> bool:
        """Return whether a saved run begins where the piece does."""
        return (self._places.get(piece.before, ROOT - 1), piece.first) in self._begun

    def _saved_of(self, stretch: Stretch) -> int:
        """Return where in the stretch's run its last saved block ends; where the stretch begins if none is saved."""
        ends = range(stretch.end, stretch.start, -1)
        return next((end for end in ends if _digest(stretch.node, end) in self._places), stretch.start)


def taken(
    index: PrefixIndex, slots: Mapping[str, Slot], most_blocks: int = MAX_ENDPOINT_BLOCKS, now: float = 0.0
) -> Snapshot:
    """Return a snapshot at ``now`` of the endpoints in ``slots`` (by address), in one step."""
    builder = SnapshotBuilder(index, now, most_blocks)
    for address, slot in slots.items():
        for _ in builder.steps(address, slot):
            pass
    return builder.snapshot()
