"""Keep a request where its prompt is cached, until waiting there costs more than computing it elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from random import Random

import msgspec

from scorers.base import Candidate, Filter, Request
from scorers.parameters import check_range
from scorers.prefix.cached import best_tier_shares


class TtftSource(Enum):
    """The method by which an endpoint's time to first token is estimated."""

    THROUGHPUT = "prefillThroughput"
    PREDICTOR = "latencyPredictor"


class PrefixAffinityParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """When an endpoint is sticky, and what makes a request leave it."""

    affinity_threshold: float = 0.8
    """The share of the prompt that makes its holder sticky; 0 keeps all candidates."""
    exploration_probability: float = 0.0
    """The probability of keeping all candidates, whichever of them hold the prompt."""
    max_ttft_penalty_ms: float = msgspec.field(default=18_000.0, name="maxTTFTPenaltyMs")
    """How much longer the best sticky endpoint may take to the first token than the best other one; 0 is unlimited."""
    ttft_source: TtftSource = TtftSource.THROUGHPUT
    peak_prefill_throughput: float = 15_928.0
    """Tokens per second. Source: the Go picker's default, for Qwen 32B on two H100."""
    prefix_match_info_producer_name: str | None = None
    """The producer whose cached prefixes are read; None reads all producers."""
    in_flight_load_producer_name: str | None = None
    """Accepted for compatibility: the name of an ``inflight-load-producer``. All of them stand for the same counts."""
    latency_prediction_info_producer_name: str | None = None

    def __post_init__(self) -> None:
        check_range("affinityThreshold", self.affinity_threshold, 0, 1)
        check_range("explorationProbability", self.exploration_probability, 0, 1)
        check_range("maxTTFTPenaltyMs", self.max_ttft_penalty_ms, 0)
        check_range("peakPrefillThroughput", self.peak_prefill_throughput, 0)
        if self.ttft_source is TtftSource.PREDICTOR:
            raise ValueError("ttftSource: nothing predicts latency here; write prefillThroughput")
        if self.latency_prediction_info_producer_name is not None:
            raise ValueError("latencyPredictionInfoProducerName: nothing predicts latency here; take it out")
        if self.max_ttft_penalty_ms and not self.peak_prefill_throughput:
            raise ValueError("peakPrefillThroughput: must be above 0, or maxTTFTPenaltyMs 0")


class PrefixAffinityFilter(Filter[PrefixAffinityParameters]):
    """Keep the endpoints that hold most of the prompt, unless all of them would be too slow.

    An endpoint is sticky if it holds ``affinity_threshold`` of the prompt or more. All candidates are kept if none is
    sticky, by chance (``exploration_probability``), or if the fewest tokens in flight at a sticky endpoint exceed the
    fewest at another endpoint by more than ``max_ttft_penalty_ms`` of prefill.

    Reads: Candidate.in_flight_tokens; Request.cached, of the configured producer or of all.
    """

    type_name = "prefix-cache-affinity-filter"
    Parameters = PrefixAffinityParameters

    def __init__(
        self, parameters: PrefixAffinityParameters | None = None, name: str = "", random: Random | None = None
    ) -> None:
        super().__init__(parameters, name)
        self._random = random or Random()
        written = self.parameters
        self._penalty_tokens = written.max_ttft_penalty_ms / 1000 * written.peak_prefill_throughput

    def keep(self, request: Request, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return the sticky candidates, or all of them."""
        written = self.parameters
        threshold, explored = written.affinity_threshold, written.exploration_probability
        if len(candidates) < 2 or not threshold or (explored and self._random.random() < explored):
            return candidates
        shares = best_tier_shares(request, written.prefix_match_info_producer_name)
        holders = {slot for slot, share in shares.items() if share >= threshold}
        sticky = [c for c in candidates if c.slot in holders] if holders else []
        if not sticky or len(sticky) == len(candidates):
            return candidates
        if self._penalty_tokens:
            best = min([c.in_flight_tokens for c in sticky])
            other = min([c.in_flight_tokens for c in candidates if c.slot not in holders])
            if best - other > self._penalty_tokens:
                return candidates
        return sticky
