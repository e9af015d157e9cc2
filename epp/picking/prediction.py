"""What was predicted of a request at its pick, and what was seen of it at its end: for those who learn."""

from __future__ import annotations

from operator import ge

from epp.decision import Outcome
from scorers.base import Candidate, Held, Mode, Observation, Prediction, Request, Tier

_RANKS = {tier: rank for rank, tier in enumerate(Tier)}
_MODES = {mode: rank for rank, mode in enumerate(Mode)}  # the best first


def predicted(request: Request, chosen: Candidate, waited_s: float) -> Prediction:
    """What ``request``'s producers say of ``chosen``; of two that speak of one tier, the one that knows it in
    the better way, and else says more."""
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
    """One of each tier, fastest first."""
    most: dict[Tier, Held] = {}
    for each in held:
        known = most.get(each.tier)
        if known is None or (-_MODES[each.mode], each.tokens) > (-_MODES[known.mode], known.tokens):
            most[each.tier] = each
    return sorted(most.values(), key=lambda each: _RANKS[each.tier])


def observed(prediction: Prediction, outcome: Outcome) -> Observation | None:
    """What is known in the end; None where nothing of the response was seen."""
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
    """Prompt tokens that ``chosen`` holds in no tier and must compute; the same as the prediction's, for less."""
    held, before, slot = 0, -1, chosen.slot
    for cached in request.cached.values():
        rank = _RANKS[cached.tier]
        if rank <= before:  # perhaps two speak of one tier
            return predicted(request, chosen, 0.0).uncached_tokens
        before = rank
        tokens = cached.tokens.get(slot, 0)
        if tokens > held:  # a third of what ``max`` takes
            held = tokens
    return max(0, request.prompt_tokens - held)
