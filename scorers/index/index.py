"""Which endpoint holds how much of a prompt, in every tier.

There is one tree of runs (``scorers.index.tree``) for all endpoints and tiers, and one order of last use for each
endpoint (``scorers.index.recency``). A decision hashes its prompt once, along the known runs. Its cost follows the
number of runs on the path, not the number of their blocks, endpoints or tiers; in addition, each new block costs 0.15
µs and each endpoint that holds something 0.03 µs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import inf

from scorers.base import Prompt, Slot
from scorers.index.endpoints import Endpoints
from scorers.index.held_along import held_along
from scorers.index.identity import PrefixHasher, digests
from scorers.index.integrity import check
from scorers.index.joining import FEW_PARTIAL, MOST_RUNS, join_along
from scorers.index.match import Match, Statistics
from scorers.index.path import NO_GATES, Gate, use_admitted
from scorers.index.recency import Recency
from scorers.index.recorded import take_back, use_again
from scorers.index.tree import Node, Walk, take_apart, walk

BYTES_PER_TOKEN = 4
BLOCK_TOKENS = 64
"""Smaller blocks follow a prompt's end more closely and cost more: 8 bytes and 0.15 µs for every new one."""


class PrefixIndex:
    """Least-recently-used sets of prefixes, one for each endpoint and tier, in one tree.

    Capacities are in tokens, and a tier holds as many full blocks as fit. What is held is prefix-closed: a match is one
    contiguous depth. Blocks are ``block_tokens`` long, and only full blocks are recorded.

    ``match`` changes nothing. Owner: the event loop.
    """

    def __init__(
        self,
        tiers: int = 1,
        block_tokens: int = BLOCK_TOKENS,
        secret: bytes | None = None,
        flow_shares: Sequence[float] = (),
        most_runs: int = MOST_RUNS,
    ) -> None:
        """Create an empty index.

        ``flow_shares`` is, for each tier, the share of it that one flow may hold; empty means no bound. The largest
        number of tokens that results bounds what a flow holds of an endpoint, in any tier. Paths of more than
        ``most_runs`` runs are joined where that changes nothing.
        """
        if tiers < 1 or block_tokens < 1:
            raise ValueError(f"tiers and block_tokens must be at least 1; they are {tiers} and {block_tokens}")
        self.tiers = tiers
        self.block_tokens = block_tokens
        self.generation = 0
        self._block_bytes = block_tokens * BYTES_PER_TOKEN
        self._hasher = PrefixHasher(secret)
        self._root = Node(None, b"")
        self._endpoints = Endpoints(tiers, flow_shares)
        self.most_runs = most_runs

    def blocks_of(self, prompt: Prompt, limit_tokens: int = sys.maxsize) -> int:
        """Return the number of full blocks in the first ``limit_tokens`` of ``prompt``."""
        return min(len(prompt.data) // self._block_bytes, limit_tokens // self.block_tokens)

    def match(self, prompt: Prompt, limit_tokens: int = sys.maxsize) -> Match:
        """Return what every endpoint holds of the first ``limit_tokens`` of ``prompt``."""
        return self._match(prompt, self.blocks_of(prompt, limit_tokens))

    def record(
        self, match: Match, slot: Slot, flow: str = "", now: float = 0.0, gates: Mapping[int, Gate] = NO_GATES
    ) -> Node | None:
        """Record that ``flow`` sends the matched prompt to ``slot`` at ``now``; return the last run of the prompt.

        The prompt's blocks become the most recent there, in every tier. The tiers of ``gates`` are gated: they take
        only what they already hold and what the gate admits. ``use_again`` and ``take_back`` accept the returned run. A
        slot without capacity records nothing and returns None. The prompt is matched again if the index has changed
        since.
        """
        recency = self._endpoints.get(slot)
        if recency is None or not match.blocks or not recency.capacity:
            return None
        fresh = match.generation == self.generation
        walked = match.walked if fresh else self._walk(match.prompt, match.blocks)
        self.generation += 1
        recency.flow = flow
        path = walked.path
        within = False
        if walked.inside is not None:
            within = walked.depth == match.blocks and (
                len(path) >= self.most_runs or walked.inside.partial.bit_count() <= FEW_PARTIAL
            )
            path.append(walked.inside if within else self._endpoints.split(walked.inside, walked.inside_blocks))
        if walked.depth < match.blocks:
            self._add_new(path, match, walked, recency, extends=not gates)
        now = max(now, recency.newest_s)
        if gates:
            use_admitted(path, match.blocks, recency, now, gates)
        else:
            if within:
                recency.use(path[-1], now, 0, walked.inside_blocks)
            for node in reversed(path[:-1] if within else path):
                recency.use(node, now)
        if len(path) > self.most_runs:
            join_along(path, self._endpoints, self.tiers, self.generation, self.most_runs)
        last = path[-1]
        recency.trim()
        return last

    def use_again(self, slot: Slot, last: Node, blocks: int, now: float) -> None:
        """Record that a prompt is used again at ``now``: the ``blocks`` blocks that ended with ``last`` when recorded.

        Only what ``slot`` still holds is used, in every tier; in a gated tier, only what that tier holds.
        """
        recency = self._endpoints.get(slot)
        if recency is None:
            return
        if use_again(recency, last, blocks, now):
            self.generation += 1

    def take_back(self, slot: Slot, last: Node, blocks: int, before: int, until_s: float) -> None:
        """Undo the recording of the ``blocks`` blocks that ended with ``last`` when recorded: they were not used.

        ``slot`` keeps the first ``before`` blocks, and what other requests have used after ``until_s``.
        """
        recency = self._endpoints.get(slot)
        if recency is not None and take_back(recency, last, blocks, before, until_s):
            self.generation += 1

    def evict_unused(self, slot: Slot, tier: int, until_s: float) -> None:
        """Evict what ``slot`` last used in ``tier`` at ``until_s`` or before. O(1) if there is nothing to evict."""
        if self.is_older(slot, tier, until_s):
            self.generation += 1
            self._endpoints[slot].evict_unused(tier, until_s)

    def shorten(self, slot: Slot, tier: int, until_s: float, tokens: int) -> None:
        """Keep at most ``tokens`` of the least recently used part of ``slot`` in ``tier``; its ends are evicted first.

        That part is everything with the oldest time of last use. Nothing changes if that time is after ``until_s``.
        """
        recency = self._endpoints.get(slot)
        if recency is None:
            return
        used_s, blocks = recency.oldest(tier)
        excess = blocks - tokens // self.block_tokens
        if used_s <= until_s and excess > 0:
            self.generation += 1
            recency.evict(tier, excess)

    def is_older(self, slot: Slot, tier: int, until_s: float) -> bool:
        """Return whether ``slot`` holds anything in ``tier`` that was last used at ``until_s`` or before."""
        recency = self._endpoints.get(slot)
        return recency is not None and recency.is_older(tier, until_s)

    def gate(self, slot: Slot, tiers: Iterable[int]) -> None:
        """Set which ``tiers`` of ``slot`` are gated; the slot must have capacities.

        A gated tier may lack some of what is newer than what it holds: using a run again does not enter the run into
        it. Tiers keep what they hold, except that a tier that is no longer gated is emptied first.
        """
        recency = self._endpoints[slot]
        gated = sum([recency.cuts[tier].mark for tier in set(tiers)])
        opened = recency.gated & ~gated
        for tier, cut in enumerate(recency.cuts):
            if cut.mark & opened:
                self.evict_unused(slot, tier, inf)
        recency.gated = gated

    def set_capacity(self, slot: Slot, tier: int, tokens: int) -> None:
        """Set how many ``tokens`` ``slot`` can hold in ``tier`` (initially 0), and evict what no longer fits."""
        recency = self._endpoints.added(slot)
        recency.cuts[tier].capacity = max(0, tokens) // self.block_tokens
        self.generation += 1
        self._endpoints.bound_flows(recency)
        recency.trim()

    def set_flow_shares(self, shares: Sequence[float]) -> bool:
        """Apply other ``shares`` at once. False, with nothing changed, if that would switch the bounds on or off."""
        if bool(shares) != bool(self._endpoints.flow_shares):
            return False
        self._endpoints.flow_shares = tuple(shares)
        self.generation += 1
        for recency in self._endpoints.values():
            self._endpoints.bound_flows(recency)
        return True

    def remove_endpoint(self, slot: Slot) -> None:
        """Remove ``slot`` and everything that it holds. The cost is proportional to its number of runs."""
        if self._endpoints.remove(slot):
            self.generation += 1

    def clear(self) -> Iterator[None]:
        """Remove all endpoints at once, and return an iterator that takes apart what they held, some at each step."""
        root, recencies = self._root, list(self._endpoints.values())
        self._root, self._endpoints = Node(None, b""), self._endpoints.emptied()
        self.generation += 1
        return chain(chain.from_iterable(recency.take_apart() for recency in recencies), take_apart(root))

    def __contains__(self, slot: Slot) -> bool:
        return slot in self._endpoints

    @property
    def secret(self) -> bytes:
        """The secret that keys the names of prefixes; must not be displayed."""
        return self._hasher.secret

    def use_secret(self, secret: bytes) -> None:
        """Name prefixes by ``secret``, as another index did.

        Raises: ValueError if the index is not empty.
        """
        if not self.is_empty:
            raise ValueError("an index that knows prefixes keeps its secret")
        self._hasher = PrefixHasher(secret)
        self.generation += 1

    def split(self, node: Node, blocks: int) -> Node:
        """Split a run after its first ``blocks``, for all of its holders; return the new run before it."""
        return self._endpoints.split(node, blocks)

    @property
    def root(self) -> Node:
        """Root of the prefix tree; used to restore a snapshot."""
        return self._root

    def recency(self, slot: Slot) -> Recency | None:
        """Return what ``slot`` holds, newest first; None for an unknown slot."""
        return self._endpoints.get(slot)

    @property
    def is_empty(self) -> bool:
        """Whether the index has no blocks."""
        return self._root.children is None

    def tokens(self, slot: Slot, tier: int) -> int:
        """Return how many tokens ``slot`` holds in ``tier``; 0 for an unknown slot."""
        recency = self._endpoints.get(slot)
        return recency.cuts[tier].used * self.block_tokens if recency is not None else 0

    def statistics(self) -> Statistics:
        """Return sums over all endpoints."""
        return self._endpoints.statistics(self.block_tokens)

    @property
    def over_share_tokens(self) -> int:
        """Tokens evicted so far because a flow held more than its share."""
        return self._endpoints.over_share_blocks * self.block_tokens

    def check_integrity(self) -> None:
        """Check all invariants of the index.

        Raises: AssertionError naming the invariants that do not hold.
        """
        check(self._root, self._endpoints.values())

    def _walk(self, prompt: Prompt, blocks: int) -> Walk:
        state = self._hasher.begin(prompt.identity)
        return walk(self._root, state, memoryview(prompt.data), blocks, self._block_bytes)

    def _match(self, prompt: Prompt, blocks: int) -> Match:
        walked = self._walk(prompt, blocks)
        total_tokens = blocks * self.block_tokens
        return Match(
            prompt,
            blocks,
            total_tokens,
            held_along(walked, self._endpoints.kept_of, self.tiers, self.block_tokens),
            walked,
            self.generation,
        )

    def _add_new(self, path: list[Node], match: Match, walked: Walk, recency: Recency, *, extends: bool) -> None:
        """Add the unknown rest of the prompt: as a new run, or to the last run if only this endpoint holds that."""
        step = self._block_bytes
        begin, end = walked.depth * step, match.blocks * step
        new = digests(walked.state, memoryview(match.prompt.data), begin, end, step)
        last = path[-1] if path else self._root
        if path and last.children is None and extends and not last.holders & ~recency.whole:
            recency.forget(last)
            last.extend(new)
            return
        child = Node(last, new)
        last.adopt(child)
        path.append(child)
