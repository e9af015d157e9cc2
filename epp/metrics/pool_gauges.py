"""The pool's gauges: means and standard deviations, and each endpoint's own numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean, pstdev

from epp.metrics.gauges import Reading
from scorers.base import Candidate


def pool_readings(name: str, candidates: Sequence[Candidate]) -> Iterator[Reading]:
    """Yield the gauges of the pool ``name``."""
    pool = ("name",)
    columns = {
        "kv_cache_utilization": ("KV cache utilization, 0 to 1", [c.kv_usage for c in candidates]),
        "queue_size": ("Requests queued in the engines", [float(c.waiting) for c in candidates]),
        "running_requests": ("Requests in the engines' batches", [float(c.running) for c in candidates]),
    }
    for column, (text, values) in columns.items():
        average = fmean(values) if values else 0.0
        deviation = pstdev(values, average) if values else 0.0
        yield Reading(f"llm_d_epp_average_{column}", f"{text}: mean over the pool.", pool, [((name,), average)])
        yield Reading(
            f"llm_d_epp_std_dev_{column}", f"{text}: standard deviation over the pool.", pool, [((name,), deviation)]
        )
    yield Reading(
        "llm_d_epp_ready_endpoints",
        "Endpoints in the pool, whether they answer or not; sum(tierwise_endpoint_fresh) are those that do.",
        pool,
        [((name,), len(candidates))],
    )
    yield Reading(
        "llm_d_epp_per_endpoint_queue_size",
        "Requests queued in an engine.",
        ("name", "model_server_endpoint"),
        [((name, c.name or c.address), c.waiting) for c in candidates],
    )
    endpoint = ("endpoint",)
    yield Reading(
        "tierwise_endpoint_in_flight_requests",
        "Requests that this picker sent to an endpoint and that have not ended.",
        endpoint,
        [((c.address,), c.in_flight) for c in candidates],
    )
    yield Reading(
        "tierwise_endpoint_fresh",
        "1 while an endpoint's metrics are read in time, else 0.",
        endpoint,
        [((c.address,), float(c.fresh)) for c in candidates],
    )
