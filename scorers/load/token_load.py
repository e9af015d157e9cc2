"""Send a request where the fewest prompt tokens are left to compute, its own included."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from scorers.base import Candidate, Request, Scorer
from scorers.parameters import check_range
from scorers.prefix.cached import held_tokens


class TokenLoadParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The scale."""

    queue_threshold_tokens: int = 4_194_304
    """Tokens ahead of an endpoint that is as good as full: 128 requests of 32,768."""
    in_flight_load_producer_name: str | None = None
    """An ``inflight-load-producer``; all of them name the same counts."""

    def __post_init__(self) -> None:
        check_range("queueThresholdTokens", self.queue_threshold_tokens, 1)


class TokenLoadScorer(Scorer[TokenLoadParameters]):
    """Score an endpoint that has nothing to compute 1, one with the threshold or more 0.

    score[i] = 1 - min(in_flight_tokens[i] + uncached[i], threshold) / threshold, where uncached are the tokens of this
    request that endpoint i holds in no tier.

    Reads: Candidate.in_flight_tokens; Request.prompt_tokens and cached, of all producers.
    """

    type_name = "token-load-scorer"
    Parameters = TokenLoadParameters

    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:
        """One score per candidate, by tokens to compute."""
        threshold, prompt = self.parameters.queue_threshold_tokens, request.prompt_tokens
        held = held_tokens(request)
        if held:
            get, most = held.get, max(held.values())
            if most > prompt:  # more than the prompt was estimated to have
                held = {slot: min(tokens, prompt) for slot, tokens in held.items()}
                get = held.get
            loads = [c.in_flight_tokens + prompt - get(c.slot, 0) for c in candidates]
        else:
            loads = [c.in_flight_tokens + prompt for c in candidates]
        return [1.0 - load / threshold if load < threshold else 0.0 for load in loads]
