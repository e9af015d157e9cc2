"""What endpoints hold of a request, as one producer or all of them together see it."""

from __future__ import annotations

from collections.abc import Mapping

from scorers.base import CachedPrefix, Request, Slot


def told(request: Request, producer: str | None) -> list[CachedPrefix]:
    """What ``producer`` found, or all producers where it is None; nothing of those that found nothing."""
    if producer is None:
        return [cached for cached in request.cached.values() if cached.weighed]
    cached = request.cached.get(producer)
    return [cached] if cached is not None and cached.weighed else []


def held_tokens(request: Request) -> Mapping[Slot, int]:
    """Prompt tokens that each endpoint need not compute: the most that any tier holds; those with none are absent."""
    found = told(request, None)
    if not found:
        return {}
    if len(found) == 1 or all(cached.tokens is found[0].tokens for cached in found):
        return found[0].tokens
    most: dict[Slot, int] = dict(found[0].tokens)
    for cached in found[1:]:
        for slot, tokens in cached.tokens.items():
            if tokens > most.get(slot, 0):
                most[slot] = tokens
    return most


def held_shares(request: Request, producer: str | None) -> dict[Slot, float]:
    """The share of the prompts that each endpoint holds, 0 to 1, in the tier that holds most; those with none are
    absent."""
    shares: dict[Slot, float] = {}
    for cached in told(request, producer):
        total = cached.total_tokens
        if total:
            for slot, tokens in cached.weighed.items():
                share = tokens / total
                if share > shares.get(slot, 0.0):
                    shares[slot] = share
    return shares
