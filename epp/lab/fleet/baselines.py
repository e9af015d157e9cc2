"""Published ways to choose an endpoint, for comparison only, written as plugins like any third-party one."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from scorers.base import Candidate, NoParameters, Picker, Request, Scorer


class RoundRobinPicker(Picker[NoParameters]):
    """Picks each endpoint in turn, whatever the scores."""

    type_name = "round-robin-picker"

    def __init__(self, parameters: NoParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        self._turn = -1

    @override
    def pick(self, candidates: Sequence[Candidate], scores: Sequence[float]) -> list[int]:
        """Return the position after the last one picked."""
        self._turn = (self._turn + 1) % len(candidates)
        return [self._turn]


class LMetricScorer(Scorer[NoParameters]):
    """Prefers the endpoint with the smallest product of work and batch size.

    product[i] = (in_flight_tokens[i] + uncached[i]) × (in_flight[i] + 1): the prompt tokens that the endpoint would
    have to compute, including those already ahead, times the requests that it would have.
    score[i] = (largest - product[i]) / (largest - smallest), or 1 for all when they are equal. A prefix that several
    tiers hold counts once, with its longest match.

    Reads: Candidate.in_flight, in_flight_tokens; Request.cached of all producers.
    Source: LMetric, arXiv 2603.15202, by its description: "new prefill tokens × batch size".
    """

    type_name = "lmetric-scorer"

    @override
    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:
        """Return one score per candidate, from its product."""
        held: dict[int, int] = {}
        for cached in request.cached.values():
            for slot, tokens in cached.tokens.items():
                held[slot] = max(tokens, held.get(slot, 0))
        prompt = request.prompt_tokens
        products = [(c.in_flight_tokens + max(0, prompt - held.get(c.slot, 0))) * (c.in_flight + 1) for c in candidates]
        most, least = max(products), min(products)
        if most == least:
            return [1.0] * len(products)
        return [(most - product) / (most - least) for product in products]
