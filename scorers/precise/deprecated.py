"""The older form of the configuration: a scorer that has the parameters of a precise producer."""

from __future__ import annotations

from collections.abc import Sequence

from scorers.base import Candidate, Request, Scorer
from scorers.precise.parameters import PreciseParameters
from scorers.precise.producer import PrecisePrefixProducer
from scorers.prefix.scorer import PrefixScorer


class PrecisePrefixScorer(Scorer[PreciseParameters]):
    """Score what an endpoint holds, by a precise producer with this scorer's parameters."""

    type_name = "precise-prefix-cache-scorer"
    Parameters = PreciseParameters

    def __init__(self, parameters: PreciseParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        self.producer_name = PrecisePrefixProducer.type_name
        """The name of the producer that the scorer reads."""
        self._scorer = PrefixScorer()

    def producer(self) -> PrecisePrefixProducer:
        """Return the producer that this scorer stands for if none is declared."""
        return PrecisePrefixProducer(self.parameters)

    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:
        """Return one score per candidate, by what it holds."""
        self._scorer.producer_name = self.producer_name
        return self._scorer.score(request, candidates)
