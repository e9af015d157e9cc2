"""The cost of loading a prefix from a tier, compared to computing it again."""

from __future__ import annotations

from math import ceil

from epp.catalog.roofline import Roofline, roofline
from epp.lab.size.fleet import Fleet
from epp.lab.size.report import PricePart, TierPart
from epp.lab.size.tiers import CPU, STORAGE


def times_of(fleet: Fleet) -> Roofline | None:
    """Return how fast an endpoint computes and loads; None without a model or a GPU."""
    if fleet.model is None or fleet.gpu is None:
        return None
    return roofline(fleet.model, fleet.gpu, fleet.ranks, fleet.kv_dtype_bytes)


def price(fleet: Fleet, times: Roofline | None, tier: TierPart, tokens: int) -> PricePart | None:
    """Return the cost of loading ``tokens`` tokens from ``tier``; None if its bandwidth is unknown."""
    lane = lane_bytes_per_s(fleet, tier.tier)
    if times is None or lane is None or fleet.token_bytes is None:
        return None
    token_s = fleet.token_bytes / lane
    shared = 1 if tier.tier == CPU else fleet.endpoints
    load_s, recompute_s = tokens * token_s, times.prefill_s(tokens)
    return PricePart(
        tier=tier.tier,
        tokens=tokens,
        load_s=load_s,
        recompute_s=recompute_s,
        load=load_s < recompute_s,
        break_even_tokens=break_even(times, token_s),
        bytes_per_s=lane,
        shared_load_s=load_s * shared,
    )


def break_even(times: Roofline, token_s: float) -> int | None:
    """Return the length from which loading at ``token_s`` per token is faster than computing; None for never.

    A prefix is loaded from its beginning, so loading saves the cheap tokens first: it pays off from some length on, or
    at once.
    """
    if token_s < times.token_s:
        return 0
    return ceil(2 * (token_s - times.token_s) / times.pair_s) if times.pair_s else None


def lane_bytes_per_s(fleet: Fleet, tier: str) -> float | None:
    """Return the bandwidth to one endpoint that loads alone; None if unknown."""
    if tier == STORAGE:
        lanes = [each for each in (fleet.storage_bytes_per_s, fleet.load_bytes_per_s) if each]
        return min(lanes) if fleet.storage_bytes_per_s else None
    return fleet.load_bytes_per_s
