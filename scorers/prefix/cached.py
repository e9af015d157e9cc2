"""What endpoints hold of a request, according to one producer or to all of them together."""

from __future__ import annotations

from collections.abc import Mapping

from scorers.base import CachedPrefix, Mode, Request, Slot, Tier


def results_of(request: Request, producer: str | None) -> list[CachedPrefix]:
    """Return what ``producer`` found, or what all producers found if it is None. Empty results are left out."""
    if producer is None:
        return [cached for cached in request.cached.values() if cached.weighed]
    cached = request.cached.get(producer)
    return [cached] if cached is not None and cached.weighed else []


_RANKS = {mode: rank for rank, mode in enumerate(Mode)}  # the best mode first


def tokens_by_tier(request: Request) -> dict[Tier, Mapping[Slot, int]]:
    """Return tokens by tier and endpoint, according to all producers together.

    If two producers cover a tier, the better mode wins per endpoint; ties go to the larger count.
    """
    found: dict[Tier, CachedPrefix] = {}
    for cached in request.cached.values():
        known = found.get(cached.tier)
        if known is None:
            found[cached.tier] = cached
        elif known.tokens is not cached.tokens:
            found[cached.tier] = _merged(known, cached)
    return {tier: cached.tokens for tier, cached in found.items()}


def _merged(one: CachedPrefix, other: CachedPrefix) -> CachedPrefix:
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


def best_tier_tokens(request: Request) -> Mapping[Slot, int]:
    """Return the prompt tokens that each endpoint need not compute: the most that any tier holds. Zeros are absent."""
    found = list(tokens_by_tier(request).values())
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


def best_tier_shares(request: Request, producer: str | None) -> dict[Slot, float]:
    """Return the share of the prompts, 0 to 1, that each endpoint holds in its best tier. Zeros are absent."""
    shares: dict[Slot, float] = {}
    for cached in results_of(request, producer):
        total = cached.total_tokens
        if total:
            for slot, tokens in cached.weighed.items():
                share = tokens / total
                if share > shares.get(slot, 0.0):
                    shares[slot] = share
    return shares
