"""What endpoints hold of a request, as one producer or all of them together see it."""

from __future__ import annotations

from collections.abc import Mapping

from scorers.base import CachedPrefix, Mode, Request, Slot, Tier


def told(request: Request, producer: str | None) -> list[CachedPrefix]:
    """What ``producer`` found, or all producers where it is None; nothing of those that found nothing."""
    if producer is None:
        return [cached for cached in request.cached.values() if cached.weighed]
    cached = request.cached.get(producer)
    return [cached] if cached is not None and cached.weighed else []


_RANKS = {mode: rank for rank, mode in enumerate(Mode)}  # the best first


def by_tier(request: Request) -> dict[Tier, Mapping[Slot, int]]:
    """Tokens by tier and endpoint, as all producers together say; of two that speak of one tier, for each endpoint the
    one that knows it in the better way, and else says more."""
    found: dict[Tier, CachedPrefix] = {}
    for cached in request.cached.values():
        known = found.get(cached.tier)
        if known is None:
            found[cached.tier] = cached
        elif known.tokens is not cached.tokens:
            found[cached.tier] = _better_known(known, cached)
    return {tier: cached.tokens for tier, cached in found.items()}


def _better_known(one: CachedPrefix, other: CachedPrefix) -> CachedPrefix:
    if one.modes == other.modes:
        every = {**one.tokens, **other.tokens}
        tokens = {slot: max(one.tokens.get(slot, 0), other.tokens.get(slot, 0)) for slot in every}
        return CachedPrefix(one.tier, one.total_tokens, tokens, one.modes)
    best: dict[Slot, tuple[int, int]] = {}
    modes: dict[Slot, Mode] = {}
    for each in (one, other):
        for slot in {**each.tokens, **each.modes}:
            mode = each.modes.get(slot, Mode.APPROXIMATE)
            claim = (-_RANKS[mode], each.tokens.get(slot, 0))
            if slot not in best or claim > best[slot]:
                best[slot], modes[slot] = claim, mode
    tokens = {slot: held for slot, (_, held) in best.items() if held}
    return CachedPrefix(one.tier, one.total_tokens, tokens, modes)


def held_tokens(request: Request) -> Mapping[Slot, int]:
    """Prompt tokens that each endpoint need not compute: the most that any tier holds; those with none are absent."""
    found = list(by_tier(request).values())
    if not found:
        return {}
    if len(found) == 1 or all(tokens is found[0] for tokens in found):
        return found[0]
    most: dict[Slot, int] = dict(found[0])
    for held in found[1:]:
        for slot, tokens in held.items():
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
