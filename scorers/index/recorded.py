"""Find a prompt that was recorded earlier, by the last run that it had then, and use it again or take it back.

The run may have been split, extended, or evicted from its end since.
"""

from __future__ import annotations

from scorers.index.identity import DIGEST_BYTES
from scorers.index.path import depth_in, use
from scorers.index.recency import Recency
from scorers.index.tree import Node


def held_path(recency: Recency, last: Node, blocks: int) -> tuple[list[Node], int, int]:
    """Return what is still held of a recorded prompt: its runs, deepest first, their blocks, and the prompt's blocks.

    The prompt is the ``blocks`` blocks that ended with ``last``; fewer are returned if other prompts may have taken the
    place of its end. There are more blocks in the runs than in the prompt if the deepest run was extended since.
    """
    path, node, depth = list[Node](), last, 0
    end, foreign = b"", 0  # the digest before a removed run; blocks behind it in the deepest run that is held
    while node.parent is not None:
        if not node.blocks:
            end = node.digests
        elif node in recency:
            if end and not path:
                foreign = _blocks_behind(end, node)
            path.append(node)
            depth += node.blocks
        node = node.parent
    blocks = min(blocks, depth - foreign)
    while path and depth - path[0].blocks >= blocks:  # runs added behind the prompt
        depth -= path.pop(0).blocks
    return path, depth, blocks


def use_again(recency: Recency, last: Node, blocks: int, now: float) -> bool:
    """Use what is still held, in every tier; in a gated tier, only what that holds. False if nothing is held."""
    path, depth, blocks = held_path(recency, last, blocks)
    if not path:
        return False
    held = min(blocks, depth - path[0].blocks + recency.held_of(path[0]))
    path.reverse()
    limits = {
        tier: min(held, depth_in(path, recency, cut))
        for tier, cut in enumerate(recency.cuts)
        if cut.mark & recency.gated
    }
    use(path, held, recency, max(now, recency.newest_s), limits)
    recency.trim()
    return True


def take_back(recency: Recency, last: Node, blocks: int, before: int, until_s: float) -> bool:
    """Drop the prompt behind its first ``before`` blocks, and return whether anything has changed.

    What was used after ``until_s``, and what another prompt continues from, is kept.
    """
    path, depth, blocks = held_path(recency, last, blocks)
    if not path or depth - path[0].blocks + recency.held_of(path[0]) > blocks:
        return False  # another prompt continues within its last run
    changed = False
    for node in path:
        begin = depth - node.blocks
        least = max(0, before - begin)
        if depth <= before or _is_followed(recency, node):
            break
        kept = _unused_from(recency, node, least, until_s)
        if kept < node.blocks:
            recency.forget(node, kept)
            changed = True
            if not node.holders:
                node.remove()
        if kept > 0:
            break
        depth = begin
    return changed


def _unused_from(recency: Recency, node: Node, least: int, until_s: float) -> int:
    """Return the block of ``node``, at least ``least``, from which on nothing was used after ``until_s``."""
    begin = node.blocks
    for stretch in recency.stretches_of(node):
        if stretch.used_s > until_s or stretch.end <= least:
            break
        begin = max(least, stretch.start)
    return begin


def _is_followed(recency: Recency, node: Node) -> bool:
    """Return whether the endpoint holds anything below ``node``."""
    return any(child.holders & recency.whole for child in (node.children or {}).values())


def _blocks_behind(digest: bytes, node: Node) -> int:
    """Return how many blocks of ``node`` follow the one with ``digest``; 0 if that is not in it."""
    at = node.digests.find(digest)
    while at > 0 and at % DIGEST_BYTES:
        at = node.digests.find(digest, at + 1)
    return 0 if at < 0 else node.blocks - at // DIGEST_BYTES - 1
