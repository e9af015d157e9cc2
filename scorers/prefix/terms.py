"""What one endpoint's tier is taken to be, from what its engine says and what is configured."""

from __future__ import annotations

from typing import NamedTuple

from scorers.base import Candidate, Mode, Tier, TierReport

HEADROOM = 4
"""How many times what an engine's tier can hold is kept of it in horizon mode: the horizon says what is gone, and the
bound is there for our memory alone. Ours are tokens of 4 bytes; of most texts an engine makes 0.7 to 2 times as many.
A guess."""


class Terms(NamedTuple):
    """What holds for one tier of one endpoint until its engine, or the configuration, says otherwise."""

    mode: Mode
    capacity_tokens: int | None
    """None: nobody says. Counts as 0."""
    bound_tokens: int
    """What the index keeps of the tier at most."""
    chunk_tokens: int
    """A hit is a whole number of these."""
    store_after: int
    """A prompt enters when computed for the so-manieth time."""
    gated: bool
    """What enters is what is computed: a request's end admits nothing. So it is with copies of GPU memory."""
    doubted_tokens: int | None
    """The capacity that is configured and more than the engine says that it has; None where it can be right."""


NO_REPORT = TierReport()


def terms(candidate: Candidate, tier: Tier, typed_tokens: int | None, *, auto: bool, follow: bool, wins: bool) -> Terms:
    """What holds for ``candidate``'s ``tier``.

    ``typed_tokens`` is what is configured, if anything is; with ``auto`` the engine's own capacity is taken where it
    tells, and ``wins`` says which of the two does. ``follow``: the engine's eviction horizon is believed.
    """
    report = candidate.tiers.get(tier, NO_REPORT)
    told = told_tokens(candidate, tier)
    doubted = typed_tokens if typed_tokens is not None and told is not None and typed_tokens > told else None
    capacity = typed_tokens
    if auto and told is not None and (typed_tokens is None or not wins):
        capacity = told
        doubted = None
    followed = follow and candidate.fresh and report.horizon_s is not None
    bound = capacity or 0
    if followed and capacity == told:
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


def told_tokens(candidate: Candidate, tier: Tier) -> int | None:
    """What ``candidate``'s engine says that its ``tier`` can hold; None where it does not say."""
    report = candidate.tiers.get(tier, NO_REPORT)
    if report.store_after == 0:
        return 0
    if report.capacity_tokens is not None or tier is not Tier.GPU or not candidate.gpu_blocks:
        return report.capacity_tokens
    return candidate.gpu_blocks * candidate.block_tokens if candidate.block_tokens else None
