"""Score by free KV memory, queue and cached prefix in one number."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from scorers.base import Candidate, Request, Scorer
from scorers.parameters import check_range
from scorers.prefix.cached import best_tier_shares

PREDICTED = ("ttftWeight", "tpotWeight", "headroomSelectionStrategy", "latencyPredictionInfoProducerName")
"""Parameters that are meaningful only for predicted latencies."""


class LatencyParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The weights of the composite; the other parameters of the Go picker's scorer are refused."""

    composite_kv_weight: float = msgspec.field(default=1.0, name="compositeKVWeight")
    composite_queue_weight: float = msgspec.field(default=1.0, name="compositeQueueWeight")
    composite_prefix_weight: float = msgspec.field(default=1.0, name="compositePrefixWeight")
    prefix_match_info_producer_name: str | None = msgspec.field(default=None, name="prefixMatchInfoProducerName")
    """The producer whose cached prefixes are read; None reads all of them."""
    ttft_weight: float | None = msgspec.field(default=None, name="ttftWeight")
    tpot_weight: float | None = msgspec.field(default=None, name="tpotWeight")
    headroom_selection_strategy: str | None = msgspec.field(default=None, name="headroomSelectionStrategy")
    latency_prediction_info_producer_name: str | None = msgspec.field(
        default=None, name="latencyPredictionInfoProducerName"
    )

    def __post_init__(self) -> None:
        check_range("compositeKVWeight", self.composite_kv_weight, 0)
        check_range("compositeQueueWeight", self.composite_queue_weight, 0)
        check_range("compositePrefixWeight", self.composite_prefix_weight, 0)
        values = (
            self.ttft_weight,
            self.tpot_weight,
            self.headroom_selection_strategy,
            self.latency_prediction_info_producer_name,
        )
        for key, value in zip(PREDICTED, values, strict=True):
            if value is not None:
                raise ValueError(f"{key}: nothing predicts latency here; take it out, and the composite decides")


class LatencyScorer(Scorer[LatencyParameters]):
    """Score by a weighted mean: the Go picker's fallback without predicted latencies, which do not exist here.

    score[i] = (kv × (1 - kv_usage[i]) + queue × (longest - waiting[i]) / longest + prefix × share[i]) / (kv + queue +
    prefix), where kv, queue and prefix are the weights. If all queues are empty, the queue's part is 1. If all weights
    are 0, only free KV memory counts.

    Reads: Candidate.kv_usage, waiting; Request.cached, of the configured producer or of all.
    """

    type_name = "latency-scorer"
    Parameters = LatencyParameters

    def __init__(self, parameters: LatencyParameters | None = None, name: str = "") -> None:
        super().__init__(parameters, name)
        written = self.parameters
        kv, queue, prefix = written.composite_kv_weight, written.composite_queue_weight, written.composite_prefix_weight
        largest = max(kv, queue, prefix)
        if not largest:
            kv = largest = 1.0
        parts = [weight / largest for weight in (kv, queue, prefix)]  # at most 1, since a sum may overflow
        self._kv, self._queue, self._prefix = [part / sum(parts) for part in parts]

    def score(self, request: Request, candidates: Sequence[Candidate]) -> list[float]:
        """Return one score per candidate, by KV memory, queue and prefix together."""
        kv, queue = self._kv, self._queue
        longest = max([c.waiting for c in candidates])
        per_free = queue / longest if longest else 0.0
        flat = kv if longest else kv + queue
        scores = [flat - kv * c.kv_usage + (longest - c.waiting) * per_free for c in candidates]
        shares = best_tier_shares(request, self.parameters.prefix_match_info_producer_name) if self._prefix else {}
        if shares:
            prefix, get = self._prefix, shares.get
            scores = [score + prefix * get(c.slot, 0.0) for score, c in zip(scores, candidates, strict=True)]
        return [score if 0.0 <= score <= 1.0 else round(score) * 1.0 for score in scores]  # rounding may give 1 + 1e-16
