"""Find a prompt that was recorded earlier, by the last run that it had then, and use it again or take it back.

The run may have been split, extended, or evicted from its end since.
"""

from __future__ import annotations

from collections.abc import Callable

from scorers.index.path import depth_in, use
from scorers.index.recency import Recency
from scorers.index.tree import Node

Split = Callable[[Node, int], Node]


def held_path(recency: Recency, last: Node, blocks: int) -> tuple[list[Node], int]:
    """Return the runs of a recorded prompt that are still held, deepest first, and the number of blocks in them.

    The prompt is the ``blocks`` blocks that ended with ``last``. The number exceeds ``blocks`` if the deepest run was
    extended since.
    """
    path, node, depth = list[Node](), last, 0
    while node.parent is not None:
        if node in recency:
            path.append(node)
            depth += node.blocks
        node = node.parent
    while path and depth - path[0].blocks >= blocks:  # runs added behind the prompt
        depth -= path.pop(0).blocks
    return path, depth


def use_again(recency: Recency, last: Node, blocks: int, now: float, split: Split) -> bool:
    """Use what is still held, in every tier; in a gated tier, only what that holds. False if nothing is held."""
    path, depth = held_path(recency, last, blocks)
    if not path:
        return False
    left = min(blocks, depth - path[0].blocks + recency.held_of(path[0]))
    if left < depth:
        path[0] = split(path[0], path[0].blocks - (depth - left))
    path.reverse()
    now = max(now, recency.newest_s)
    lacking = recency.gated & ~path[-1].full  # a tier that holds the end holds all
    limits = {tier: depth_in(path, cut) for tier, cut in enumerate(recency.cuts) if cut.bit & lacking}
    use(path, recency, now, limits, split)
    recency.trim()
    return True


def take_back(recency: Recency, last: Node, blocks: int, before: int, until_s: float, split: Split) -> bool:
    """Drop the prompt behind its first ``before`` blocks, and return whether anything has changed.

    What was used after ``until_s``, and what another prompt continues from, is kept.
    """
    path, depth = held_path(recency, last, blocks)
    changed = False
    if depth > blocks:
        return False  # another prompt continues within its last run
    for node in path:
        begin = depth - node.blocks
        if depth <= before or recency.used_s(node) > until_s or _is_followed(recency, node):
            break
        if begin < before:
            split(node, before - begin)  # ``node`` is the lower part from here on
        if node in recency:
            recency.forget(node)
            if not node.holders:
                node.remove()
        changed, depth = True, begin
    return changed


def _is_followed(recency: Recency, node: Node) -> bool:
    """Return whether the endpoint holds anything below ``node``."""
    return any(child.holders & recency.whole for child in (node.children or {}).values())
