"""Save an index as plain data in small steps, so that requests in between do not have to wait.

For each endpoint, the snapshot has what each tier held when the endpoint's turn began and still held when the run was
read. Runs that are split or extended in the meantime are saved again as they then are, so that each endpoint's part is
consistent in itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from scorers.base import Slot
from scorers.index.flow_share import FlowRecency
from scorers.index.identity import DIGEST_BYTES
from scorers.index.index import PrefixIndex
from scorers.index.recency import Recency
from scorers.index.snapshot import NOBODY, ROOT, SavedRuns, Snapshot
from scorers.index.tree import Node

MAX_ENDPOINT_BLOCKS = 4_000_000
"""The most recent blocks that are kept of one endpoint: 256 million tokens. A guess, far above any engine's memory."""


class Taking:
    """A snapshot in the making. Owner: the event loop."""

    def __init__(self, index: PrefixIndex, now: float, most_blocks: int = MAX_ENDPOINT_BLOCKS) -> None:
        """Begin a snapshot: ages are relative to ``now``, and only an endpoint's newest ``most_blocks`` are saved."""
        self._index = index
        self._now = now
        self._most_blocks = most_blocks
        self._places: dict[Node, int] = {}
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
        index = self._index
        recency = index.recency(slot)
        if recency is None or not recency.used:
            return
        taken = _Runs(recency, index.tiers, self._now)
        for node in list(recency):
            yield
            if index.recency(slot) is not recency:
                return
            if node not in recency or node in taken.places:
                continue
            lineage = [node]
            while (above := lineage[-1].parent) is not None and above is not index.root and above not in taken.places:
                lineage.append(above)
            if not all(each in recency for each in lineage) or not self._ends_as_told(above, taken):
                continue
            for each in reversed(lineage):  # the runs above were split off since
                if taken.blocks + each.blocks > self._most_blocks:
                    break
                place = self._place(each, taken)
                taken.add(each, place, self._parents[place], self._flows)
            else:
                continue
            break
        if taken.runs:
            self._endpoints[address] = taken.saved()

    def _ends_as_told(self, above: Node | None, taken: _Runs) -> bool:
        """Return whether the run ``above`` has not been joined to the next one since it was saved."""
        place = None if above is None else taken.places.get(above)
        return place is None or above is None or self._digests[place].endswith(above.digests[-DIGEST_BYTES:])

    def _place(self, node: Node, taken: _Runs) -> int:
        parent = ROOT if node.parent is None else taken.places.get(node.parent, ROOT)
        place = self._places.get(node)
        if place is None or self._digests[place] != node.digests or self._parents[place] != parent:
            place = self._places[node] = len(self._parents)
            self._parents.append(parent)
            self._digests.append(node.digests)
        return place


class _Runs:
    """The runs of one endpoint saved so far."""

    def __init__(self, recency: Recency, tiers: int, now: float) -> None:
        self.places: dict[Node, int] = {}
        self.runs: list[int] = []
        self.blocks = 0
        self._recency = recency
        self._now = now
        self._base = recency.slot * tiers
        self._gated = recency.gated >> self._base
        self._open = recency.whole >> self._base  # the tiers whose end was not reached yet
        self._used = [0] * tiers
        self._holders = {ROOT: self._gated}  # by position: the gated tiers that hold the run
        self._payers: list[int] = []
        self._ages: list[float] = []
        self._held_by: list[int] = []

    def add(self, node: Node, place: int, parent: int, flows: dict[str, int]) -> None:
        """Save the next run, which is held and older than those before it; what enters a tier meanwhile is left out."""
        recency = self._recency
        self.places[node] = place
        self.runs.append(place)
        self.blocks += node.blocks
        age = max(0.0, self._now - recency.used_s(node))
        self._ages.append(max(age, self._ages[-1]) if self._ages else age)
        full = node.full >> self._base & self._open
        some = full | node.partial >> self._base & self._open
        if self._gated:
            some &= ~self._gated | self._holders[parent]
            holders = self._holders[place] = some & self._gated
            self._held_by.append(holders)
        for tier, cut in enumerate(recency.cuts):
            if some >> tier & 1:
                self._used[tier] += node.blocks if full >> tier & 1 else cut.kept
        self._open &= full | (self._gated & ~some)  # behind its end a tier holds only what it got since
        if isinstance(recency, FlowRecency):
            flow = recency.flow_of(node)
            self._payers.append(NOBODY if flow is None else flows.setdefault(flow, len(flows)))

    def saved(self) -> SavedRuns:
        """Return everything saved of the endpoint."""
        return SavedRuns(tuple(self._used), self.runs, self._payers, self._ages, self._gated, self._held_by)


def taken(
    index: PrefixIndex, slots: Mapping[str, Slot], most_blocks: int = MAX_ENDPOINT_BLOCKS, now: float = 0.0
) -> Snapshot:
    """Return a snapshot at ``now`` of the endpoints in ``slots`` (by address), in one step."""
    taking = Taking(index, now, most_blocks)
    for address, slot in slots.items():
        for _ in taking.steps(address, slot):
            pass
    return taking.snapshot()
