"""The learned constants of the cost model, as metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from epp.metrics.gauges import Reading, ReadingSource
from scorers.base import Candidate, Producer
from scorers.cost.report import named
from scorers.cost.tier_cost import TierCostProducer

TEXTS = {
    "fixed_seconds": "Time to first token that no part of the request explains, as learned.",
    "prefill_seconds_per_token": "Prefill of one prompt token, as learned.",
    "prefill_seconds_per_pair": "Prefill attention of one pair of tokens, as learned.",
    "decode_seconds_per_request": "What each running request adds to another's time to first token, as learned.",
    "cpu_load_fixed_seconds": "One load from CPU memory, whatever its size, as learned.",
    "cpu_load_seconds_per_token": "Loading the KV of one token from CPU memory, as learned.",
    "storage_load_fixed_seconds": "One load from storage, whatever its size, as learned.",
    "storage_load_seconds_per_token": "Loading the KV of one token from storage, as learned.",
    "stay_seconds": "From a request's first token to its end, as learned: the median.",
}


def cost_readings(
    producers: Callable[[], Sequence[Producer[Any]]], candidates: Callable[[], Sequence[Candidate]]
) -> ReadingSource:
    """Return the source of the constants by kind of endpoint, and of the endpoints' factors; empty without prices."""

    def read() -> Iterator[Reading]:
        producer = next((p for p in producers() if isinstance(p, TierCostProducer)), None)
        if producer is None:
            return
        kinds = producer.model.kinds
        constants = {kind: named(known.constants) for kind, known in kinds.items()}
        for name, text in TEXTS.items():
            samples = [((kind,), values[name]) for kind, values in constants.items()]
            yield Reading(f"tierwise_cost_{name}", text, ("kind",), samples)
        yield Reading(
            "tierwise_cost_observations",
            "Requests that were learned from: used, or refused as too far from all others.",
            ("kind", "result"),
            [
                ((kind, result), count)
                for kind, known in kinds.items()
                for result, count in (("used", known.learner.used), ("refused", known.learner.refused))
            ],
            counter=True,
        )
        costs = [producer.model.costs(candidate) for candidate in candidates()]
        yield Reading(
            "tierwise_cost_endpoint_factor",
            "How many times as long an endpoint takes as its kind, to compute and to load; 1 until it has shown more.",
            ("endpoint", "part"),
            [
                ((place.address, part), factor)
                for place in costs
                for part, factor in (("computing", place.computing.factor), ("loading", place.loading.factor))
            ],
        )

    return read
