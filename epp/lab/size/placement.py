"""Which tier a workload will be served from."""

from __future__ import annotations

from math import ceil

from epp.catalog.roofline import Roofline
from epp.lab.size.fleet import Fleet
from epp.lab.size.prices import lane_bytes_per_s
from epp.lab.size.report import HomePart, TierPart, WorkloadPart
from epp.lab.size.tiers import GPU, STORAGE
from epp.lab.size.workload import Workload

NEARLY_ALL = 0.9
NOWHERE, UNKNOWN = "nowhere", "unknown"


def place(fleet: Fleet, workload: Workload, tiers: tuple[TierPart, ...], times: Roofline | None) -> WorkloadPart:
    """Return how much of ``workload`` each tier will serve."""
    homes: list[HomePart] = []
    above = scattered_above = 0.0
    revisits = workload.revisits(fleet.endpoints)
    question = workload.question_len
    known = any(tier.tier == GPU for tier in tiers)
    for tier in tiers if known else ():
        kept = tier.tier == GPU  # generated tokens enter only the GPU's cache
        if tier.tier == STORAGE:
            everything = workload.at_one_of(1, answers_kept=False)
            ours = theirs = everything
            capacity: int = tier.fleet_tokens
        else:
            ours = workload.at_one_of(fleet.endpoints, answers_kept=kept)
            theirs = workload.scattered_over(fleet.endpoints, answers_kept=kept)
            capacity = tier.tokens_per_endpoint if fleet.gpu_keeps or not kept else 0
        share, scattered = (
            max(above, ours.hit_share(capacity)),
            theirs.hit_share(capacity) * (1.0 if tier.tier == STORAGE else revisits),
        )
        scattered = max(scattered_above, scattered)
        homes.append(
            HomePart(
                tier=tier.tier,
                hit_share=share - above,
                scattered_hit_share=scattered - scattered_above,
                holds_all=ours.all_tokens <= capacity,
                request_s=_served_s(fleet, times, tier, workload),
            )
        )
        above, scattered_above = share, scattered
    served, lives_in = 0.0, NOWHERE
    for home in homes:
        served += home.hit_share
        if served >= NEARLY_ALL:
            lives_in = home.tier
            break
    recompute_s = times.prefill_s(workload.prompt_tokens) if times else 0.0
    return WorkloadPart(
        name=workload.name,
        num_groups=workload.num_groups,
        num_prompts_per_group=workload.num_prompts_per_group,
        system_prompt_len=workload.system_prompt_len,
        question_len=question,
        output_len=workload.output_len,
        concurrency=workload.concurrency,
        shared_tokens=workload.shared_tokens,
        own_tokens=workload.own_tokens,
        working_set_tokens=workload.working_set_tokens,
        working_set_bytes=round(workload.working_set_tokens * (fleet.token_bytes or 0)),
        groups_per_endpoint=ceil(workload.num_groups / fleet.endpoints),
        active_tokens_per_endpoint=workload.active_tokens(fleet.endpoints),
        homes=tuple(homes),
        recomputed_share=1 - above if known else None,
        scattered_recomputed_share=1 - scattered_above if known else None,
        recompute_s=recompute_s,
        lives_in=lives_in if known else UNKNOWN,
        sentence=_sentence(fleet, workload, tiers, homes, lives_in)
        if known
        else "Where it lives depends on what GPU memory holds: give --gpu, or --num-gpu-blocks-override.",
    )


def _sentence(
    fleet: Fleet, workload: Workload, tiers: tuple[TierPart, ...], homes: list[HomePart], lives_in: str
) -> str:
    crowd = _crowd(fleet, workload, tiers)
    found = sum(home.hit_share for home in homes)
    if lives_in == GPU:
        fits = "fits into GPU memory" if homes[0].holds_all else "lives in GPU memory"
        return f"{crowd}It {fits} where each group stays at one endpoint; a tier below can add its overhead only."
    if lives_in == NOWHERE:
        best = f"{found:.0%} of shared prompts are found again" if found >= 0.005 else "no shared prompt is found again"
        return f"{crowd}It fits nowhere: {best}, the others are computed each time. Add endpoints, memory or a tier."
    upper = homes[: [home.tier for home in homes].index(lives_in)]
    alone = sum(home.hit_share for home in upper)
    names = " and ".join(home.tier for home in upper)
    together = alone + homes[len(upper)].hit_share
    without = (
        f"the {names} tier{'s' if len(upper) > 1 else ''} alone would find {alone:.0%}" if upper else "nothing above it"
    )
    return (
        f"{crowd}It lives in the {lives_in} tier: with it {together:.0%} of shared prompts are found again; {without}."
    )


def _crowd(fleet: Fleet, workload: Workload, tiers: tuple[TierPart, ...]) -> str:
    """Return a sentence if not all concurrent requests can run at once; otherwise an empty string."""
    gpu = next((tier for tier in tiers if tier.tier == GPU), None)
    active, here = workload.active_tokens(fleet.endpoints), ceil(workload.concurrency / fleet.endpoints)
    if gpu is None or active <= gpu.tokens_per_endpoint:
        return ""
    return (
        f"{here} requests at a time keep {active:,} tokens in use on an endpoint, and its GPU tier holds "
        f"{gpu.tokens_per_endpoint:,}: about {gpu.tokens_per_endpoint * here // active} of them run, the others wait. "
    )


def _served_s(fleet: Fleet, times: Roofline | None, tier: TierPart, workload: Workload) -> float:
    if times is None:
        return 0.0
    rest = times.prefill_s(workload.question_len, workload.system_prompt_len)
    lane = None if tier.tier == GPU else lane_bytes_per_s(fleet, tier.tier)
    load = workload.system_prompt_len * (fleet.token_bytes or 0) / lane if lane else 0.0
    return rest + load
