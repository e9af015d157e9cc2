"""Which endpoint holds how much of a prompt, in every tier.

One tree of runs (``scorers.index.tree``) for all endpoints and tiers; one order of last use for each endpoint
(``scorers.index.recency``). A decision hashes its prompt once, along the runs that are known, and what it costs follows
the number of runs on the path, not that of their blocks, endpoints or tiers; to that come 0.15 µs for each new block
and 0.03 µs for each endpoint that holds something.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from math import inf

from scorers.base import Prompt, Slot
from scorers.index.flow_share import FlowRecency
from scorers.index.held_along import held_along
from scorers.index.holders import slots_of
from scorers.index.identity import PrefixHasher, digests
from scorers.index.integrity import check
from scorers.index.joining import MOST_RUNS, join_along
from scorers.index.match import Match, Statistics
from scorers.index.path import NO_GATES, Gate, admitted_to, use
from scorers.index.recency import Recency, kept_of
from scorers.index.recorded import take_back, use_again
from scorers.index.tree import Node, Walk, take_apart, walk

BYTES_PER_TOKEN = 4
BLOCK_TOKENS = 64
"""Smaller ones follow a prompt's end more closely and cost more: 8 bytes and 0.15 µs for every new one."""


class PrefixIndex:
    """Least-recently-used sets of prefixes, one for each endpoint and tier, in one tree.

    Capacities are in tokens, and a tier holds as many full blocks as they have room for. What is held is prefix-closed:
    a match is one contiguous depth. Blocks are ``block_tokens`` long; only full ones are known.

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
        """``flow_shares`` says for each tier what share of it one flow may hold; none is as much as there is. The
        largest number of tokens that this comes to bounds what a flow holds of an endpoint, in any tier. Paths of more
        than ``most_runs`` runs are joined where that changes nothing."""
        if tiers < 1 or block_tokens < 1:
            raise ValueError(f"tiers and block_tokens must be at least 1; they are {tiers} and {block_tokens}")
        self.tiers = tiers
        self.block_tokens = block_tokens
        self.generation = 0
        self._block_bytes = block_tokens * BYTES_PER_TOKEN
        self._hasher = PrefixHasher(secret)
        self._root = Node(None, b"")
        self._endpoints: dict[Slot, Recency] = {}
        self._flow_shares = tuple(flow_shares)
        self._most_runs = most_runs
        self._over_share = 0  # blocks, of endpoints that are gone

    def blocks_of(self, prompt: Prompt, limit_tokens: int = sys.maxsize) -> int:
        """Full blocks in the first ``limit_tokens`` of ``prompt``."""
        return min(len(prompt.data) // self._block_bytes, limit_tokens // self.block_tokens)

    def match(self, prompt: Prompt, limit_tokens: int = sys.maxsize) -> Match:
        """What every endpoint holds of the first ``limit_tokens`` of ``prompt``."""
        return self._match(prompt, self.blocks_of(prompt, limit_tokens))

    def record(
        self, match: Match, slot: Slot, flow: str = "", now: float = 0.0, gates: Mapping[int, Gate] = NO_GATES
    ) -> Node | None:
        """Note that ``flow`` sends the matched prompt to ``slot`` ``now``: its blocks become the most recent there, in
        every tier, but in those of ``gates``, which are gated, only what is there and what the gate admits.

        Returns the last run of it, by which ``use_again`` knows it. A slot without capacity learns nothing. The prompt
        is matched anew where the index has changed since.
        """
        recency = self._endpoints.get(slot)
        if recency is None or not match.blocks or not recency.capacity:
            return None
        fresh = match.generation == self.generation
        walked = match.walked if fresh else self._walk(match.prompt, match.blocks)
        self.generation += 1
        if isinstance(recency, FlowRecency):
            recency.flow = flow
        path = walked.path
        if walked.inside is not None:
            path.append(self.split(walked.inside, walked.inside_blocks))
        if walked.depth < match.blocks:
            self._add_new(path, match, walked, recency, extends=not gates)
        now = max(now, recency.newest_s)
        if gates:
            limits = {tier: admitted_to(path, recency.cuts[tier], gate) for tier, gate in gates.items()}
            use(path, recency, now, limits, self.split)
        else:
            for node in reversed(path):
                recency.use(node, now)
        if len(path) > self._most_runs:
            join_along(path, self._endpoints, self.tiers, self.generation)
        last = path[-1]
        recency.trim()
        return last

    def use_again(self, slot: Slot, last: Node, blocks: int, now: float) -> None:
        """Note that the ``blocks`` blocks that ended with ``last`` when they were recorded are used ``now``, as far as
        ``slot`` holds them, in every tier; in a gated one only what that holds."""
        recency = self._endpoints.get(slot)
        if recency is None:
            return
        if use_again(recency, last, blocks, now, self.split):
            self.generation += 1

    def take_back(self, slot: Slot, last: Node, blocks: int, before: int, until_s: float) -> None:
        """Note that the ``blocks`` blocks that ended with ``last`` when they were recorded were not used after all:
        ``slot`` holds its first ``before``, and what others have used after ``until_s``."""
        recency = self._endpoints.get(slot)
        if recency is not None and take_back(recency, last, blocks, before, until_s, self.split):
            self.generation += 1

    def evict_unused(self, slot: Slot, tier: int, until_s: float) -> None:
        """Let ``slot`` hold nothing in ``tier`` that was last used at ``until_s`` or before. O(1) where it does not."""
        if self.is_older(slot, tier, until_s):
            self.generation += 1
            self._endpoints[slot].evict_unused(tier, until_s)

    def shorten(self, slot: Slot, tier: int, until_s: float, tokens: int) -> None:
        """Of what ``slot`` used first of all that it holds in ``tier``, hold no more than ``tokens``, if that was at
        ``until_s`` or before: its ends go."""
        recency = self._endpoints.get(slot)
        if recency is None:
            return
        used_s, blocks = recency.oldest(tier)
        excess = blocks - tokens // self.block_tokens
        if used_s <= until_s and excess > 0:
            self.generation += 1
            recency.evict(tier, excess)

    def is_older(self, slot: Slot, tier: int, until_s: float) -> bool:
        """Whether ``slot`` holds anything in ``tier`` that was last used at ``until_s`` or before."""
        recency = self._endpoints.get(slot)
        return recency is not None and recency.is_older(tier, until_s)

    def gate(self, slot: Slot, tiers: Iterable[int]) -> None:
        """Say which of ``slot``'s tiers, which has capacities, may hold less than others of what is newer: what is used
        again does not enter them. What they hold is left; a tier that is no longer gated is emptied first."""
        recency = self._endpoints[slot]
        gated = sum([recency.cuts[tier].bit for tier in set(tiers)])
        opened = recency.gated & ~gated
        for tier, cut in enumerate(recency.cuts):
            if cut.bit & opened:
                self.evict_unused(slot, tier, inf)
        recency.gated = gated

    def set_capacity(self, slot: Slot, tier: int, tokens: int) -> None:
        """Let ``slot`` hold ``tokens`` in ``tier``; what does not fit any more is evicted at once. Unset means 0."""
        recency = self._endpoints.get(slot)
        if recency is None:
            bounded = bool(self._flow_shares)
            recency = FlowRecency(slot, self.tiers, self.split) if bounded else Recency(slot, self.tiers)
            self._endpoints[slot] = recency
        recency.cuts[tier].capacity = max(0, tokens) // self.block_tokens
        self.generation += 1
        self._bound_flows(recency)
        recency.trim()

    def set_flow_shares(self, shares: Sequence[float]) -> bool:
        """Take other shares, at once; False, and nothing has changed, where bounds were or would be off."""
        if bool(shares) != bool(self._flow_shares):
            return False
        self._flow_shares = tuple(shares)
        self.generation += 1
        for recency in self._endpoints.values():
            self._bound_flows(recency)
        return True

    def remove_endpoint(self, slot: Slot) -> None:
        """Forget ``slot`` and all that it holds. Costs as much as it holds runs."""
        recency = self._endpoints.pop(slot, None)
        if recency is not None:
            self.generation += 1
            self._over_share += recency.evicted_blocks if isinstance(recency, FlowRecency) else 0
            recency.dissolve()

    def clear(self) -> Iterator[None]:
        """Forget all endpoints at once. To be iterated: takes apart what they held, some at each step."""
        root, recencies = self._root, list(self._endpoints.values())
        self._root, self._endpoints = Node(None, b""), {}
        self.generation += 1
        return chain(chain.from_iterable(recency.take_apart() for recency in recencies), take_apart(root))

    def __contains__(self, slot: Slot) -> bool:
        return slot in self._endpoints

    @property
    def secret(self) -> bytes:
        """What prefixes are named by; not to be shown."""
        return self._hasher.secret

    def use_secret(self, secret: bytes) -> None:
        """Name prefixes by ``secret``, as another index did. Raises: ValueError when something is known already."""
        if not self.is_empty:
            raise ValueError("an index that knows prefixes keeps its secret")
        self._hasher = PrefixHasher(secret)
        self.generation += 1

    @property
    def root(self) -> Node:
        """Of all that is known; for those who put back what another index knew."""
        return self._root

    def recency(self, slot: Slot) -> Recency | None:
        """What ``slot`` holds, newest first; None for an unknown slot."""
        return self._endpoints.get(slot)

    @property
    def is_empty(self) -> bool:
        """Whether no block is known."""
        return self._root.children is None

    def tokens(self, slot: Slot, tier: int) -> int:
        """Held by ``slot`` in ``tier``; 0 for an unknown slot."""
        recency = self._endpoints.get(slot)
        return recency.cuts[tier].used * self.block_tokens if recency is not None else 0

    def statistics(self) -> Statistics:
        """Sums over the endpoints."""
        every = self._endpoints.values()
        return Statistics(
            endpoints=len(self._endpoints),
            blocks=sum(recency.used for recency in every),
            runs=sum(len(recency) for recency in every),
            tokens_by_tier=tuple(
                [sum(recency.cuts[tier].used for recency in every) * self.block_tokens for tier in range(self.tiers)]
            ),
        )

    @property
    def over_share_tokens(self) -> int:
        """Evicted so far because a flow held more than its share."""
        bounded = [recency for recency in self._endpoints.values() if isinstance(recency, FlowRecency)]
        return (self._over_share + sum([recency.evicted_blocks for recency in bounded])) * self.block_tokens

    def check_integrity(self) -> None:
        """Raises: AssertionError naming the invariants that do not hold."""
        check(self._root, self._endpoints.values())

    def _bound_flows(self, recency: Recency) -> None:
        if isinstance(recency, FlowRecency):
            tiers = zip(recency.cuts, self._flow_shares, strict=True)
            recency.set_bound(max([int(round(cut.capacity * share, 6)) for cut, share in tiers]))

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
            held_along(walked, partial(kept_of, self._endpoints, self.tiers), self.tiers, self.block_tokens),
            walked,
            self.generation,
        )

    def split(self, node: Node, blocks: int) -> Node:
        """Cut off the first ``blocks`` of a run, for everybody who holds it; the new run before it."""
        upper = node.split(blocks)
        for slot in slots_of(node.holders, self.tiers):
            self._endpoints[slot].split(upper, node)
        return upper

    def _add_new(self, path: list[Node], match: Match, walked: Walk, recency: Recency, *, extends: bool) -> None:
        """Make the unknown rest of the prompt a run, or part of the last one if that is this endpoint's alone."""
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
