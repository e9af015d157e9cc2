"""What an endpoint holds of a request, summed over its prompts, in estimated or real tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from scorers.base import CachedPrefix, Request, Slot
from scorers.index.index import BYTES_PER_TOKEN
from scorers.index.match import Match


def summed(matches: Sequence[Match], tier: int, limit: int, chunks: Mapping[Slot, int]) -> dict[Slot, int]:
    """Return tokens by endpoint: of each prompt no more than ``limit``, and only whole chunks.

    An engine always computes a prompt's last token, since it continues from there. So a chunk that ends with the last
    token is not a cache hit.
    """
    tokens: dict[Slot, int] = {}
    for table, usable, prompts in _alike(matches, tier, with_lengths=bool(chunks)) if limit else ():
        for slot, held in table.items():
            counted = min(held, limit)
            if slot in chunks:
                counted = min(counted, usable)
                counted -= counted % chunks[slot]
            if counted:
                tokens[slot] = tokens.get(slot, 0) + counted * prompts
    return tokens


def _alike(matches: Sequence[Match], tier: int, *, with_lengths: bool) -> Iterator[tuple[dict[Slot, int], int, int]]:
    """Group prompts in a row with equal results.

    Yields what is held of each prompt in a group, how many of its tokens may be a cache hit (0 unless
    ``with_lengths``), and the group's size. The prompts of a batch usually begin alike, and comparing two tables is 30
    times as fast as adding one up.
    """
    table: dict[Slot, int] = {}
    usable = prompts = 0
    for match in matches:
        tokens = (len(match.prompt.data) - 1) // BYTES_PER_TOKEN if with_lengths else 0
        if tokens != usable or match.held[tier] != table:
            if prompts:
                yield table, usable, prompts
            table, usable, prompts = match.held[tier], tokens, 0
        prompts += 1
    if prompts:
        yield table, usable, prompts


def in_tokens(found: CachedPrefix, request: Request) -> CachedPrefix:
    """Convert ``found``, which assumes four bytes per token, to the tokens that the prompts really have."""
    if request.tokens is request.prompts:
        return found
    taken = sum([-(-len(prompt.data) // 4) for prompt in request.prompts])
    real = sum([len(prompt.data) for prompt in request.tokens or ()]) / 4
    scale = real / taken if taken else 0.0
    tokens = {slot: int(held * scale) for slot, held in found.tokens.items()}
    return CachedPrefix(found.tier, int(found.total_tokens * scale), tokens, found.modes)
