"""Send a request where its prompt is already cached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scorers.base import Candidate, Request, Scorer, Slot
from scorers.parameters import check_range
from scorers.prefix.deprecated import OlderForm
from scorers.prefix.producer import ApproxPrefixProducer

FEW = 16
"""Up to this many holders are scored one by one, 0.2 µs each; a look at every candidate takes 4 µs for 100."""


class PrefixParameters(OlderForm, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Which producer a scorer reads, and how it weights the length of a match."""

    prefix_match_info_producer_name: str | None = None
    """None is the scorer's own producer, in the older form; otherwise the one named
    ``approx-prefix-cache-producer``."""
    match_length_weight: float = 0.0
    """How much the length of the match counts, rather than its share of the prompt."""
    match_length_scale_tokens: int = 8192
    """The length that counts fully. Units: tokens."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("matchLengthWeight", self.match_length_weight, 0, 1)
        check_range("matchLengthScaleTokens", self.match_length_scale_tokens, 1)


class PrefixScorer(Scorer[PrefixParameters]):
    """Score the share of the prompt that an endpoint holds.

    score[i] = w × min(1, tokens[i] / scale)² + (1 - w) × tokens[i] / total, where total is the number of tokens in the
    prompts' full blocks, so an endpoint that was sent the same request before has 1; w is 0 unless configured.

    Reads: ``Request.cached`` of one producer.
    """

    type_name = "prefix-cache-scorer"
    Parameters = PrefixParameters

    def __init__(self, parameters: PrefixParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        its_own = self.name if self.parameters.has_own_producer(self.name) else ApproxPrefixProducer.type_name
        self.producer_name = self.parameters.prefix_match_info_producer_name or its_own
        """The name of the producer that the scorer reads."""

    @property
    def has_legacy_parameters(self) -> bool:
        """Whether a producer's parameters are configured in the scorer, as in llm-d v0.4."""
        return self.parameters.is_older_form

    def legacy_producer(self) -> ApproxPrefixProducer | None:
        """Return the producer that this scorer stands for if none is declared; None if it names a producer.

        The producer has the scorer's own name if the scorer has a producer's parameters or its name contains a tier;
        otherwise the default name.
        """
        if self.parameters.prefix_match_info_producer_name:
            return None
        if not self.parameters.has_own_producer(self.name):
            return ApproxPrefixProducer()
        return self.parameters.own_producer(self.name)

    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:
        """Return one score per candidate, by what it holds."""
        cached = request.cached.get(self.producer_name)
        if cached is None or not cached.total_tokens or not (weighed := cached.weighed):
            return [0.0] * len(candidates)
        total = cached.total_tokens
        if len(weighed) <= FEW and (scores := self._of_few(weighed, total, candidates)):
            return scores
        held = weighed.get
        values = {tokens: self._value(tokens, total) for tokens in {0, *weighed.values()}}
        return [values[held(c.slot, 0)] for c in candidates]

    def _of_few(self, weighed: Mapping[Slot, float], total: int, candidates: Sequence[Candidate]) -> list[float] | None:
        """Return the scores without looking at candidates that hold nothing.

        None if a holder's slot is not its position; slots are positions as long as no endpoint is missing.
        """
        count = len(candidates)
        scores = [0.0] * count
        for slot, tokens in weighed.items():
            if slot >= count or candidates[slot].slot != slot:
                return None
            scores[slot] = self._value(tokens, total)
        return scores

    def _value(self, tokens: float, total: int) -> float:
        weight = self.parameters.match_length_weight
        if not weight:
            return tokens / total
        scale = self.parameters.match_length_scale_tokens
        return weight * min(1.0, tokens / scale) ** 2 + (1.0 - weight) * tokens / total
