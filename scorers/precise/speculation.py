"""What endpoints will soon hold, since requests were just sent there, until the engines' events confirm it.

This is a tree of prompts like that of the index, in which every pick counts along its path for ``lifetime_s``. A later
pick of the same prompt is counted separately, so the end of the first one does not affect it.
"""

from __future__ import annotations

from collections import deque

from scorers.base import Prompt, Slot
from scorers.index.identity import PrefixHasher, digests
from scorers.index.tree import Node, walk
from scorers.precise.index import BYTES_PER_TOKEN, bits_of

MOST = 100_000
"""Number of picks remembered; beyond it, the oldest end early."""
LEAST_BLOCK_TOKENS = 16
"""Smaller blocks are combined until they have this many tokens, since a digest for each token would take long."""
MOST_TOKENS = 1 << 17
"""Tokens of one prompt that are remembered, as digests of 100,000 tokens take a millisecond."""


class Speculations:
    """One ``Speculation`` for each block size, since an endpoint will hold whole blocks of its own size.

    Owner: the event loop.
    """

    def __init__(self, lifetime_s: float, secret: bytes | None = None) -> None:
        self._lifetime_s = lifetime_s
        self._secret = secret
        self._by_size: dict[int, Speculation] = {}

    def __len__(self) -> int:
        """Return the number of prompts of picks that have not ended."""
        return sum([len(each) for each in self._by_size.values()])

    def add(self, prompt: Prompt, slot: Slot, block_tokens: int, now: float) -> None:
        """Note that a request with ``prompt`` was sent to ``slot``, whose blocks have ``block_tokens``."""
        size = -(-LEAST_BLOCK_TOKENS // block_tokens) * block_tokens
        speculation = self._by_size.get(size)
        if speculation is None:
            self._by_size = {known: each for known, each in self._by_size.items() if len(each)}
            speculation = self._by_size[size] = Speculation(self._lifetime_s, size, self._secret)
        speculation.add(prompt, slot, now)

    def held(self, prompt: Prompt, usable_tokens: int, now: float) -> dict[Slot, int]:
        """Return how many of the first ``usable_tokens`` of ``prompt`` each endpoint was sent within the lifetime."""
        held: dict[Slot, int] = {}
        for speculation in self._by_size.values():
            for slot, tokens in speculation.held(prompt, now, usable_tokens).items():
                held[slot] = max(tokens, held.get(slot, 0))
        return held

    def forget(self, slot: Slot) -> None:
        """Forget ``slot``, which another endpoint may get."""
        for speculation in self._by_size.values():
            speculation.forget(slot)


class Speculation:
    """Recent picks with one block size, as a tree of their prompts.

    Invariant: ``_picks[node][slot]`` is how many picks that have not ended go through ``node``, and more than 0.

    Owner: the event loop.
    """

    def __init__(self, lifetime_s: float, block_tokens: int, secret: bytes | None = None) -> None:
        self._lifetime_s = lifetime_s
        self._step = block_tokens * BYTES_PER_TOKEN
        self._block_tokens = block_tokens
        self._hasher = PrefixHasher(secret)
        self._root = Node(None, b"")
        self._picks: dict[Node, dict[Slot, int]] = {}
        self._ends: deque[tuple[float, Slot, Node]] = deque()

    def __len__(self) -> int:
        """Return the number of prompts of picks that have not ended."""
        return len(self._ends)

    def add(self, prompt: Prompt, slot: Slot, now: float) -> None:
        """Note that a request with ``prompt`` was sent to ``slot``."""
        step, data = self._step, memoryview(prompt.data)
        blocks = min(len(data) // step, MOST_TOKENS // self._block_tokens)
        if not blocks:
            return
        if len(self._ends) >= MOST:
            self._end()
        walked = walk(self._root, self._hasher.begin(prompt.identity), data, blocks, step)
        leaf = walked.path[-1] if walked.path else self._root
        if walked.inside is not None:
            leaf = walked.inside.split(walked.inside_blocks)
            leaf.full = walked.inside.full
            self._picks[leaf] = dict(self._picks[walked.inside])
        if walked.depth < blocks:
            above = leaf
            leaf = Node(above, digests(walked.state, data, walked.depth * step, blocks * step, step))
            above.adopt(leaf)
        node: Node | None = leaf
        while node is not None and node is not self._root:
            picks = self._picks.setdefault(node, {})
            picks[slot] = picks.get(slot, 0) + 1
            node.full |= 1 << slot
            node = node.parent
        self._ends.append((now + self._lifetime_s, slot, leaf))

    def held(self, prompt: Prompt, now: float, most_tokens: int = MOST_TOKENS) -> dict[Slot, int]:
        """Return how many tokens of the beginning of ``prompt`` each endpoint was sent within the lifetime.

        Counts whole blocks.
        """
        while self._ends and self._ends[0][0] <= now:
            self._end()
        data = memoryview(prompt.data)
        if not self._ends:
            return {}
        blocks = min(len(data) // self._step, most_tokens // self._block_tokens)
        walked = walk(self._root, self._hasher.begin(prompt.identity), data, blocks, self._step)
        runs = [(node, node.blocks) for node in walked.path]
        if walked.inside is not None:
            runs.append((walked.inside, walked.inside_blocks))
        held: dict[Slot, int] = {}
        depth = 0
        for node, known in runs:
            depth += known
            held.update(dict.fromkeys([Slot(slot) for slot in bits_of(node.full)], depth * self._block_tokens))
        return held

    def forget(self, slot: Slot) -> None:
        """Forget ``slot``, which another endpoint may get."""
        kept = [end for end in self._ends if end[1] != slot]
        for _, _, leaf in [end for end in self._ends if end[1] == slot]:
            self._take(slot, leaf)
        self._ends = deque(kept)

    def _end(self) -> None:
        _, slot, leaf = self._ends.popleft()
        self._take(slot, leaf)

    def _take(self, slot: Slot, leaf: Node) -> None:
        node: Node | None = leaf
        while node is not None and node is not self._root:
            above, picks = node.parent, self._picks[node]
            picks[slot] -= 1
            if not picks[slot]:
                del picks[slot]
                node.full &= ~(1 << slot)
                if not picks:
                    del self._picks[node]
                    node.remove()
            node = above
