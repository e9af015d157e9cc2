"""The prediction of a request at its pick, and the observation at its end, for the parts that learn."""

from __future__ import annotations

from operator import ge

from epp.decision import Outcome
from scorers.base import Candidate, Held, Mode, Observation, Prediction, Request, Tier

_RANKS = {tier: rank for rank, tier in enumerate(Tier)}
_MODES = {mode: rank for rank, mode in enumerate(Mode)}  # the best first


def predicted(request: Request, chosen: Candidate, waited_s: float) -> Prediction:
    """Return what the request's producers report about ``chosen``, one entry per tier, fastest first.

    If two producers cover a tier, the better mode wins; ties go to the larger count.
    """
    slot = chosen.slot
    held = [
        Held(cached.tier, cached.tokens.get(slot, 0), cached.modes.get(slot, Mode.APPROXIMATE))
        for cached in request.cached.values()
    ]
    if len(held) > 1:
        ranks = [_RANKS[each.tier] for each in held]
        if any(map(ge, ranks, ranks[1:])):
            held = _in_order(held)
    return Prediction(chosen, tuple(held), request.prompt_tokens, waited_s)


def _in_order(held: list[Held]) -> list[Held]:
    """Return the best entry of each tier, fastest tier first."""
    most: dict[Tier, Held] = {}
    for each in held:
        known = most.get(each.tier)
        if known is None or (-_MODES[each.mode], each.tokens) > (-_MODES[known.mode], known.tokens):
            most[each.tier] = each
    return sorted(most.values(), key=lambda each: _RANKS[each.tier])


def observed(prediction: Prediction, outcome: Outcome) -> Observation | None:
    """Return the observation of a request that has ended; None if nothing of its response was seen."""
    usage, ttft_s, duration_s = outcome.usage, outcome.ttft_s, outcome.duration_s
    if usage is None and ttft_s is None:
        return None
    waited_s = prediction.waited_s
    return Observation(
        prediction,
        outcome.status,
        outcome.streaming,
        None if ttft_s is None else max(0.0, ttft_s - waited_s),
        None if duration_s is None else max(0.0, duration_s - waited_s),
        None if usage is None else usage.prompt_tokens or None,
        None if usage is None else usage.cached_tokens,
        {} if usage is None else usage.cached_by_tier,
        None if usage is None else usage.completion_tokens,
    )


def uncached_tokens(request: Request, chosen: Candidate) -> int:
    """Return the prompt tokens that ``chosen`` holds in no tier and must compute.

    The result is the prediction's, at less cost.
    """
    held, before, slot = 0, -1, chosen.slot
    for cached in request.cached.values():
        rank = _RANKS[cached.tier]
        if rank <= before:  # two producers may cover one tier
            return predicted(request, chosen, 0.0).uncached_tokens
        before = rank
        tokens = cached.tokens.get(slot, 0)
        if tokens > held:  # a third of what ``max`` takes
            held = tokens
    return max(0, request.prompt_tokens - held)
