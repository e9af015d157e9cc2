"""The assumptions about one tier of one endpoint, from what its engine reports and what is configured."""

from __future__ import annotations

from typing import NamedTuple

from scorers.base import Candidate, Mode, Tier, TierReport

HEADROOM = 4
"""In horizon mode the index keeps this many times an engine's capacity. The horizon decides what is gone, so the bound
only protects our memory. Our tokens are 4 bytes each; for most texts an engine has 0.7 to 2 times as many. A guess."""
TOLERANCE = 0.1
"""How far a configured capacity may be off the engine's, as a share of the engine's: blocks are rounded down, and a
number is often written for the model and not for the engine. A guess."""


class Terms(NamedTuple):
    """What applies to one tier of one endpoint until its engine's report, or the configuration, changes."""

    mode: Mode
    capacity_tokens: int | None
    """What the tier can hold; None if unknown, which counts as 0."""
    bound_tokens: int
    """The most that the index keeps of the tier."""
    chunk_tokens: int
    """Tokens that are kept or dropped together: a cache hit is a whole number of these."""
    store_after: int
    """How often a prompt must be computed before it is stored."""
    gated: bool
    """Whether only computed blocks enter the tier, so that the end of a request admits nothing. True for a tier that
    holds copies of GPU memory."""
    doubted_tokens: int | None
    """The configured capacity, if it is more than ``TOLERANCE`` off what the engine reports; else None."""


NO_REPORT = TierReport()


def terms(
    candidate: Candidate, tier: Tier, configured_tokens: int | None, *, auto: bool, follow: bool, configured_first: bool
) -> Terms:
    """Return the terms for ``tier`` of ``candidate``.

    ``configured_tokens`` is the configured capacity, if there is one. With ``auto``, the engine's reported capacity is
    used; with ``configured_first``, a configured capacity takes precedence over it. With ``follow``, the engine's
    eviction horizon is used.
    """
    report = candidate.tiers.get(tier, NO_REPORT)
    reported = reported_tokens(candidate, tier)
    doubted = configured_tokens if _differs(configured_tokens, reported) else None
    capacity = configured_tokens
    if auto and reported is not None and (configured_tokens is None or not configured_first):
        capacity = reported
        doubted = None
    followed = follow and candidate.fresh and report.horizon_s is not None
    bound = capacity or 0
    if followed and capacity == reported:
        bound *= HEADROOM
    return Terms(
        Mode.HORIZON if followed else Mode.APPROXIMATE,
        capacity,
        bound,
        report.block_tokens or 1,
        (report.store_after or 1) if follow else 1,
        follow and tier is not Tier.GPU and report.store_after is not None,
        doubted,
    )


def reported_tokens(candidate: Candidate, tier: Tier) -> int | None:
    """Return what the engine of ``candidate`` reports that ``tier`` can hold; None if it does not report it."""
    report = candidate.tiers.get(tier, NO_REPORT)
    if report.store_after == 0:
        return 0
    if report.capacity_tokens is not None or tier is not Tier.GPU or not candidate.gpu_blocks:
        return report.capacity_tokens
    return candidate.gpu_blocks * candidate.block_tokens if candidate.block_tokens else None


def _differs(configured_tokens: int | None, reported: int | None) -> bool:
    if configured_tokens is None or reported is None:
        return False
    return abs(configured_tokens - reported) > TOLERANCE * reported
