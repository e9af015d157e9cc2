"""The known prefixes as a tree of runs, and the walk of a prompt down it.

A *run* is a stretch of blocks in which no known prompt ends or branches off. One node is one run, so a walk costs one
hash call for each run and none for the blocks inside it.

    root ── system prompt (312 blocks) ─┬─ conversation A (40 blocks)
                                        └─ conversation B (7 blocks) ─┬─ answer 1 (12 blocks)
                                                                      └─ answer 2 (9 blocks)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
from xxhash import xxh3_64

from scorers.index.identity import DIGEST_BYTES

STEP = 200
"""Number of runs taken apart in one step."""


class Node(msgspec.Struct, gc=False, eq=False):
    """One run of blocks, held by at least one endpoint in at least one tier.

    ``digests`` has one digest for each block of the run, joined. ``full`` are the holders (``scorers.index.holders``)
    of the whole run; ``partial`` are the holders of its first blocks only, and their recency has the number of blocks.
    The root has no blocks.

    Invariant: ``parent.children[digests[:8]] is self``; a holder of any block of a run holds the whole parent run.

    Nodes are not tracked by the garbage collector, so that it takes no longer for a large index (one pass over a
    million blocks was 40 to 150 ms). A parent must therefore have no children when it dies.
    """

    parent: Node | None
    digests: bytes
    blocks: int = 0
    children: dict[bytes, Node] | None = None
    full: int = 0
    partial: int = 0

    def __post_init__(self) -> None:
        self.blocks = len(self.digests) // DIGEST_BYTES

    @property
    def holders(self) -> int:
        """The holders of any block of the run."""
        return self.full | self.partial

    def adopt(self, child: Node) -> None:
        """Make ``child`` one of the children, replacing the one with the same first digest."""
        if self.children is None:
            self.children = {}
        self.children[child.digests[:DIGEST_BYTES]] = child
        child.parent = self

    def extend(self, digests: bytes) -> None:
        """Append ``digests`` to the run, which must be a leaf."""
        self.digests += digests
        self.blocks = len(self.digests) // DIGEST_BYTES

    def split(self, blocks: int) -> Node:
        """Cut off the first ``blocks`` as a new parent of the rest, and return it. The caller sets its holders.

        The node itself stays the lower part, so its children need not change.
        """
        if self.parent is None:
            raise ValueError("the root has no blocks to split")
        upper = Node(self.parent, self.digests[: blocks * DIGEST_BYTES])
        self.digests = self.digests[blocks * DIGEST_BYTES :]
        self.blocks -= blocks
        self.parent.adopt(upper)
        upper.adopt(self)
        return upper

    def join(self, child: Node) -> None:
        """Take in ``child``, the only child, and adopt its children. The caller sets the holders.

        A reference to the child still finds this node, as its parent.
        """
        self.digests += child.digests
        self.blocks += child.blocks
        self.children, child.children = child.children, None
        for below in (self.children or {}).values():
            below.parent = self

    def remove(self) -> None:
        """Remove a node that has no holder from the tree.

        It has no blocks then, and as its digests only that of the block before it: where it was, other prompts may
        continue within the parent run from now on.
        """
        parent = self.parent
        siblings = None if parent is None else parent.children
        if parent is not None and siblings is not None and siblings.get(self.digests[:DIGEST_BYTES]) is self:
            del siblings[self.digests[:DIGEST_BYTES]]
            if not siblings:
                parent.children = None
            self.digests, self.blocks = parent.digests[-DIGEST_BYTES:], 0

    def descendants(self) -> Iterator[Node]:
        """Yield every node below this one."""
        below = list((self.children or {}).values())
        while below:
            node = below.pop()
            yield node
            below.extend((node.children or {}).values())


def take_apart(root: Node) -> Iterator[None]:
    """Cut every link below ``root``, which is no longer in use, some at each step.

    Parents and children refer to each other, and the garbage collector does not track them.
    """
    below = [root]
    while below:
        for _ in range(min(STEP, len(below))):
            node = below.pop()
            below.extend((node.children or {}).values())
            node.parent = node.children = None
        yield


@dataclass(slots=True)
class Walk:
    """How far a prompt follows the tree."""

    path: list[Node]
    """The runs that the prompt contains whole, from the root down."""
    depth: int
    """Number of known blocks in total, including those of ``inside``."""
    inside: Node | None
    """The run within which the prompt ends or leaves the tree."""
    inside_blocks: int
    """How many of its blocks the prompt has: more than 0 and fewer than all."""
    state: xxh3_64
    """The hash state after everything up to ``depth``."""


def walk(root: Node, state: xxh3_64, data: memoryview, blocks: int, block_bytes: int) -> Walk:
    """Follow the first ``blocks`` of ``data`` from ``root``, as deep as they are known.

    A child is found by the digest of the next block, and its whole run is then compared by one more digest. If that
    differs, the place is found by bisection: equal digests mean equal bytes, so they are equal exactly up to there.
    """
    path: list[Node] = []
    node, depth = root, 0
    while depth < blocks and node.children is not None:
        at = depth * block_bytes
        first = state.copy()
        first.update(data[at : at + block_bytes])
        child = node.children.get(first.digest())
        if child is None:
            break
        reach = min(child.blocks, blocks - depth)
        known, state = _known(child, first, data[at : at + reach * block_bytes], reach, block_bytes)
        depth += known
        if known < child.blocks:
            return Walk(path, depth, child, known, state)
        path.append(child)
        node = child
    return Walk(path, depth, None, 0, state)


def _known(child: Node, first: xxh3_64, data: memoryview, blocks: int, block_bytes: int) -> tuple[int, xxh3_64]:
    """Return how many of the ``blocks`` of ``data`` the run begins with, at least 1, and the hash state after them.

    ``first`` is the state after one block.
    """
    low, high, tried = 1, blocks + 1, blocks
    state = first
    while low < tried:  # first all blocks at once, then bisection
        trial = state.copy()
        trial.update(data[low * block_bytes : tried * block_bytes])
        if trial.digest() == child.digests[(tried - 1) * DIGEST_BYTES : tried * DIGEST_BYTES]:
            low, state = tried, trial
        else:
            high = tried
        tried = (low + high) // 2
    return low, state
