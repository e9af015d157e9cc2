"""Which endpoint holds how much of a prompt, block by block as the engines report it.

This is the tree of runs of ``scorers.index.tree``, one for each block size (an engine's CPU tier may move 256 tokens at
a time where its GPU tier keeps 16), maintained from outside. The process that reads the engines' events owns the runs,
numbers them, and reports how many blocks of each run each holder has from its start. So one change here is a change of
one run, however many blocks it has, and a prompt is matched as in ``scorers.index.index``: one hash call for each known
run.

The order of last use that ``scorers.index.index`` keeps beside its tree is not needed here: an engine reports what it
drops, and decides on the order itself. So how much of a run each holder has is reported for each run, and not derived
from where a tier's cut lies.

A *holder* is one tier of one source of events, ``source * TIERS + tier``; ``scorers.precise.cache`` maps sources to
endpoints.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import chain

import msgspec

from scorers.base import Tier
from scorers.index.held_along import held_along
from scorers.index.identity import PrefixHasher
from scorers.index.tree import Node, take_apart, walk

TIERS = (Tier.GPU, Tier.CPU, Tier.STORAGE)
BYTES_PER_TOKEN = 4


class PreciseMatch(msgspec.Struct, frozen=True):
    """What is known of one prompt."""

    held: tuple[dict[int, int], ...]
    """For each of ``TIERS``, the contiguous tokens from the prompt's start by source. Sources that hold nothing are
    absent; a source with blocks of several sizes in one tier gets the most that any size yields."""
    known_tokens: int
    """How many tokens of the prompt are in the tree, whichever endpoint holds them."""


class PreciseIndex:
    """The runs, by number and as trees, and how much of each run each holder has.

    Invariant: a holder's bit is in ``full`` of the runs that it holds whole, and in ``partial`` of those of which
    ``_kept`` has the number of blocks that it holds, more than none and fewer than all.

    Owner: the event loop. ``match`` changes nothing. Calls that name an unknown run are ignored.
    """

    def __init__(self, secret: bytes | None = None) -> None:
        self._hasher = PrefixHasher(secret)
        self._roots: dict[int, Node] = {}
        self._runs: dict[int, Node] = {}
        self._kept: dict[Node, dict[int, int]] = {}  # by run: holders of a part, and how many blocks

    def __len__(self) -> int:
        """Return the number of runs."""
        return len(self._runs)

    @property
    def blocks(self) -> int:
        """Number of distinct blocks."""
        return sum([node.blocks for node in self._runs.values()])

    @property
    def block_sizes(self) -> Iterable[int]:
        """Tokens per block, for each size that is in use."""
        return self._roots.keys()

    def add(self, run: int, parent: int, block_tokens: int, digests: bytes) -> None:
        """Add a new run without holders below ``parent``; 0 is the root of blocks of ``block_tokens``."""
        above = self._runs.get(parent) if parent else self._roots.get(block_tokens)
        if above is None:
            if parent:
                return
            above = self._roots[block_tokens] = Node(None, b"")
        node = self._runs[run] = Node(above, digests)
        above.adopt(node)

    def grow(self, run: int, digests: bytes) -> None:
        """Extend a run without children; endpoints that held it whole now hold its first blocks."""
        node = self._runs.get(run)
        if node is None:
            return
        if node.full:
            kept = self._kept.setdefault(node, {})
            kept.update(dict.fromkeys(bits_of(node.full), node.blocks))
            node.partial |= node.full
            node.full = 0
        node.extend(digests)

    def split(self, run: int, blocks: int, upper: int) -> None:
        """Split a run: its first ``blocks`` become the run ``upper``, and ``run`` is the rest."""
        node = self._runs.get(run)
        if node is None:
            return
        above = self._runs[upper] = node.split(blocks)
        above.full = node.full
        parts = self._kept.pop(node, None)
        if parts is None:
            return
        node.partial = 0
        for holder, kept in parts.items():
            self._set(above, holder, min(kept, blocks))
            self._set(node, holder, max(0, kept - blocks))

    def hold(self, run: int, holder: int, blocks: int) -> None:
        """Set that ``holder`` has the first ``blocks`` of a run, and no more."""
        node = self._runs.get(run)
        if node is not None:
            self._set(node, holder, blocks)

    def drop(self, run: int) -> None:
        """Remove a run that has no holder and no children."""
        node = self._runs.pop(run, None)
        if node is not None:
            above = node.parent
            self._kept.pop(node, None)
            node.remove()
            node.parent = None
            if above is not None and above.parent is None and above.children is None:
                self._roots = {size: root for size, root in self._roots.items() if root is not above}

    def clear(self, secret: bytes) -> Iterator[None]:
        """Forget everything at once, and match digests made with ``secret``.

        Iterate over the result to take the old runs apart, some at each step, since they refer to each other.
        """
        self._hasher = PrefixHasher(secret)
        roots = list(self._roots.values())
        self._runs, self._roots, self._kept = {}, {}, {}
        return chain.from_iterable(map(take_apart, roots))

    def match(self, identity: bytes, data: bytes, limit_tokens: int = sys.maxsize) -> PreciseMatch:
        """Return what every source holds of the first ``limit_tokens`` of a prompt."""
        found: tuple[dict[int, int], ...] = tuple({} for _ in TIERS)
        view, known = memoryview(data), 0
        for block_tokens, root in self._roots.items():
            step = block_tokens * BYTES_PER_TOKEN
            blocks = min(len(data) // step, limit_tokens // block_tokens)
            if not blocks or root.children is None:
                continue
            walked = walk(root, self._hasher.begin(identity), view, blocks, step)
            known = max(known, walked.depth * block_tokens)
            for tier, held in enumerate(held_along(walked, self._parts, len(TIERS), block_tokens)):
                of_tier = found[tier]
                for source, tokens in held.items():
                    if tokens > of_tier.get(source, 0):
                        of_tier[source] = tokens
        return PreciseMatch(found, known)

    def check_integrity(self) -> None:
        """Check the invariants of all runs.

        Raises: AssertionError naming the first invariant that does not hold.
        """
        for run, node in self._runs.items():
            parts = self._kept.get(node, {})
            if node.full & node.partial or node.partial != sum([1 << holder for holder in parts]):
                raise AssertionError(f"run {run}: who holds part of it is not who has a number there")
            if not all(0 < kept < node.blocks for kept in parts.values()):
                raise AssertionError(f"run {run}: {parts} are not parts of {node.blocks} blocks")
            if node.parent is None or (node.parent.children or {}).get(node.digests[:8]) is not node:
                raise AssertionError(f"run {run}: its parent does not know it")

    def _set(self, node: Node, holder: int, blocks: int) -> None:
        bit = 1 << holder
        if node.partial & bit:
            node.partial ^= bit
            parts = self._kept[node]
            del parts[holder]
            if not parts:
                del self._kept[node]
        if blocks >= node.blocks:
            node.full |= bit
            return
        node.full &= ~bit
        if blocks > 0:
            node.partial |= bit
            self._kept.setdefault(node, {})[holder] = blocks

    def _parts(self, node: Node, holders: int) -> Iterator[tuple[int, int]]:
        parts = self._kept[node]
        for holder in bits_of(holders):
            yield 1 << holder, parts[holder]


def bits_of(mask: int) -> Iterator[int]:
    """Yield the positions of the ones in ``mask``."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
