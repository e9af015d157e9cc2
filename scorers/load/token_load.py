"""Send a request where the fewest prompt tokens are left to compute, including its own."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from scorers.base import Candidate, Request, Scorer
from scorers.parameters import check_range
from scorers.prefix.cached import best_tier_tokens


class TokenLoadParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The scale of the scores."""

    queue_threshold_tokens: int = 4_194_304
    """An endpoint with this many tokens ahead counts as full: 128 requests of 32,768."""
    in_flight_load_producer_name: str | None = None
    """Accepted for compatibility: the name of an ``inflight-load-producer``. All of them stand for the same counts."""

    def __post_init__(self) -> None:
        check_range("queueThresholdTokens", self.queue_threshold_tokens, 1)


class TokenLoadScorer(Scorer[TokenLoadParameters]):
    """Score an endpoint with nothing to compute 1, and one at the threshold or above 0.

    score[i] = 1 - min(in_flight_tokens[i] + uncached[i], threshold) / threshold, where uncached are the tokens of this
    request that endpoint i holds in no tier.

    Reads: Candidate.in_flight_tokens; Request.prompt_tokens and cached, of all producers.
    """

    type_name = "token-load-scorer"
    Parameters = TokenLoadParameters

    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:
        """Return one score per candidate, by tokens to compute."""
        threshold, prompt = self.parameters.queue_threshold_tokens, request.prompt_tokens
        held = best_tier_tokens(request)
        if held:
            get, most = held.get, max(held.values())
            if most > prompt:  # more than the estimated number of prompt tokens
                held = {slot: min(tokens, prompt) for slot, tokens in held.items()}
                get = held.get
            loads = [c.in_flight_tokens + prompt - get(c.slot, 0) for c in candidates]
        else:
            loads = [c.in_flight_tokens + prompt for c in candidates]
        return [1.0 - load / threshold if load < threshold else 0.0 for load in loads]
