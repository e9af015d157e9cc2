"""The connector's metrics, on their way from the scheduler to vLLM's ``/metrics``.

After each step, vLLM collects them on the scheduler's side, sends them to the process that serves HTTP, and has them
observed there. Gauges are sent as current values, of which the latest counts; counters are sent as increments.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from typing_extensions import override
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

if TYPE_CHECKING:
    from vllm.config import VllmConfig

PREFIX = "kvengine:"
TIERS = ("gpu", "cpu")
DIRECTIONS = ("load", "store")
TIER_GAUGES = {
    "capacity_tokens": "Tokens that the tier can hold; 0 where nothing is looked up in it.",
    "capacity_bytes": "Bytes of that, of all workers together.",
    "resident_tokens": "Tokens that the tier holds and that can be found.",
    "resident_bytes": "Bytes of those.",
    "pinned_tokens": "Tokens that are in use and cannot be evicted now.",
    "pinned_bytes": "Bytes of those.",
    "block_tokens": "Tokens that are kept or dropped together.",
    "store_after": "A prompt's tokens enter the tier when computed so many times; 0: nothing enters.",
    "stores_decoded": "1 when generated tokens enter the tier, too.",
    "eviction_horizon_timestamp_seconds": "Unix time at which the most recently used of all evicted blocks had last "
    "been used; never decreases, 0 before the first eviction. What entered and was used later is still there.",
    "horizon_resident_tokens": "Tokens that were last used just then and are still there: the beginning of what is "
    "being evicted. 0 with `eviction_policy: arc`, under which it need not be the beginning.",
}
MOMENTS = {
    "clock_timestamp_seconds": "Unix time of the page, by the clock of the horizons. To compare horizons with "
    "another clock, subtract the difference of the two clocks.",
    "start_timestamp_seconds": "Unix time at which the engine began, with empty tiers; 0 until it is known.",
}
ARENA_GAUGES = {
    "first_ready_seconds": "Seconds from the start until the first piece of host memory was ready, 0 before; this and "
    "the next three are those of the slowest worker.",
    "ready_seconds": "Seconds from the start until all host memory was ready; 0 before, and where it never is.",
    "pin_seconds": "Seconds in which some piece of host memory was being pinned.",
    "longest_pin_seconds": "Seconds that the slowest piece took to pin: a step may have had to wait for so long.",
}
COUNTERS = {
    "lookup_hit_tokens": "Tokens of prompts that were found in host memory beyond what the device held.",
    "lookup_miss_tokens": "Tokens of prompts that were found nowhere.",
    "stored_tokens": "Tokens stored in host memory.",
    "loaded_tokens": "Tokens loaded from host memory, in whole chunks.",
    "evicted_tokens": "Tokens evicted from host memory.",
    "deferred_tokens": "Tokens not stored, for they were not computed often enough yet.",
    "no_slot_tokens": "Tokens not stored, for every slot was in use.",
    "missed_tokens": "Tokens not stored, for their request ended while host memory was not ready, or while copies that "
    "had not ended held half of the device's blocks or were late.",
    "internal_errors": "Errors of kvengine's own on the scheduler's side. One in a lookup costs its request what is "
    "kept, any other one ends offloading.",
    "waits": "Requests that waited for another one's load of the same tokens.",
    "waits_given_up": "Requests that computed what another one was loading, for it took too long.",
}
JOB_COUNTERS = {
    "jobs": "Copies that ended.",
    "failed_jobs": "Copies that failed; what was to be loaded is computed.",
    "late_jobs": "Copies that had not ended after a minute; what was to be loaded is computed, and until they end "
    "nothing else is copied.",
    "copied_bytes": "Bytes copied, of all workers.",
    "copy_seconds": "Seconds from a copy's submission in a worker to its end, of all workers.",
}
JOB_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""Histogram bucket bounds. Units: seconds."""


class Statistics(KVConnectorStats):
    """One step's metrics as plain data, since they are sent from process to process.

    ``data`` holds ``gauges`` by name and tier, ``counters`` by name, ``jobs`` by name and direction, ``job_seconds``
    and ``open_jobs`` by direction, ``arena`` by name, and ``start_s``.
    """

    data: dict[str, Any]

    @override
    def reset(self) -> None:
        self.data = {}

    @override
    def aggregate(self, other: KVConnectorStats) -> Statistics:
        mine, theirs = self.data, other.data
        return Statistics(
            data={
                "gauges": theirs.get("gauges") or mine.get("gauges", {}),
                "arena": theirs.get("arena") or mine.get("arena", {}),
                "open_jobs": theirs.get("open_jobs") or mine.get("open_jobs", {}),
                "start_s": theirs.get("start_s") or mine.get("start_s", 0.0),
                "counters": added(mine.get("counters", {}), theirs.get("counters", {})),
                "jobs": {
                    name: added(mine.get("jobs", {}).get(name, {}), theirs.get("jobs", {}).get(name, {}))
                    for name in JOB_COUNTERS
                },
                "job_seconds": {
                    way: [*mine.get("job_seconds", {}).get(way, []), *theirs.get("job_seconds", {}).get(way, [])]
                    for way in DIRECTIONS
                },
            }
        )

    @override
    def reduce(self) -> dict[str, int | float]:
        cpu = {name: values.get("cpu", 0) for name, values in self.data.get("gauges", {}).items()}
        counters = self.data.get("counters", {})
        copied = self.data.get("jobs", {}).get("copied_bytes", {})
        return {
            "cpu resident tokens": cpu.get("resident_tokens", 0),
            "cpu capacity tokens": cpu.get("capacity_tokens", 0),
            "hit tokens": counters.get("lookup_hit_tokens", 0),
            "stored tokens": counters.get("stored_tokens", 0),
            "evicted tokens": counters.get("evicted_tokens", 0),
            "loaded MiB": round(copied.get("load", 0) / 2**20, 1),
            "stored MiB": round(copied.get("store", 0) / 2**20, 1),
        }

    @override
    def is_empty(self) -> bool:
        return not self.data


def forget_earlier() -> None:
    """Remove the metrics of an earlier engine in this process from the registry, as vLLM does with its own."""
    for collector in list(REGISTRY._collector_to_names):
        if getattr(collector, "_name", "").startswith(PREFIX):
            REGISTRY.unregister(collector)


def added(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    """Return the sum of two dictionaries, key by key."""
    return {key: one.get(key, 0) + other.get(key, 0) for key in {**one, **other}}


class Exposition(KVConnectorPromMetrics):
    """The Prometheus metrics in the process that serves HTTP. Every series exists from the start, at 0."""

    def __init__(
        self,
        vllm_config: VllmConfig,
        metric_types: dict[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        forget_earlier()
        gauge, counter, histogram = metric_types[Gauge], metric_types[Counter], metric_types[Histogram]
        by_tier, by_way = [*labelnames, "tier"], [*labelnames, "direction"]
        self._tiers = {
            name: gauge(
                name=f"{PREFIX}tier_{name}", documentation=text, labelnames=by_tier, multiprocess_mode="mostrecent"
            )
            for name, text in TIER_GAUGES.items()
        }
        self._moments = {
            name: gauge(name=PREFIX + name, documentation=text, labelnames=labelnames, multiprocess_mode="mostrecent")
            for name, text in MOMENTS.items()
        }
        self._arena = {
            name: gauge(
                name=f"{PREFIX}arena_{name}", documentation=text, labelnames=labelnames, multiprocess_mode="mostrecent"
            )
            for name, text in ARENA_GAUGES.items()
        }
        self._counters = {
            name: counter(name=PREFIX + name, documentation=text, labelnames=labelnames)
            for name, text in COUNTERS.items()
        }
        self._jobs = {
            name: counter(name=PREFIX + name, documentation=text, labelnames=by_way)
            for name, text in JOB_COUNTERS.items()
        }
        self._open = gauge(
            name=f"{PREFIX}open_jobs", documentation="Copies that were ordered and have not ended.",
            labelnames=by_way, multiprocess_mode="mostrecent",
        )  # fmt: skip
        self._seconds = histogram(
            name=f"{PREFIX}job_seconds",
            documentation="Seconds from a copy's order by the scheduler to the last worker's report.",
            labelnames=by_way, buckets=JOB_BUCKETS,
        )  # fmt: skip
        self._gauge = {  # looked up once, since they are set in every step
            (engine, name, tier): metric.labels(*values, tier)
            for engine, values in per_engine_labelvalues.items()
            for name, metric in self._tiers.items()
            for tier in TIERS
        }
        self._clocks = {
            engine: self._moments["clock_timestamp_seconds"].labels(*values)
            for engine, values in per_engine_labelvalues.items()
        }
        for clock in self._clocks.values():
            if hasattr(clock, "set_function"):  # otherwise (several front ends) it is as old as the last step
                clock.set_function(time.time)
        for values in per_engine_labelvalues.values():
            self._moments["start_timestamp_seconds"].labels(*values)
            for metric in (*self._arena.values(), *self._counters.values()):
                metric.labels(*values)
            for way in DIRECTIONS:
                for metric in (*self._jobs.values(), self._open, self._seconds):
                    metric.labels(*values, way)

    @override
    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        labels = self.per_engine_labelvalues[engine_idx]
        self._clocks[engine_idx].set(time.time())
        if start_s := transfer_stats_data.get("start_s"):
            self._moments["start_timestamp_seconds"].labels(*labels).set(start_s)
        for name, by_tier in transfer_stats_data.get("gauges", {}).items():
            for tier, value in by_tier.items():
                self._gauge[engine_idx, name, tier].set(value)
        for name, value in transfer_stats_data.get("arena", {}).items():
            self._arena[name].labels(*labels).set(value)
        for name, value in transfer_stats_data.get("counters", {}).items():
            self._counters[name].labels(*labels).inc(value)
        for name, by_way in transfer_stats_data.get("jobs", {}).items():
            for way, value in by_way.items():
                self._jobs[name].labels(*labels, way).inc(value)
        for way, value in transfer_stats_data.get("open_jobs", {}).items():
            self._open.labels(*labels, way).set(value)
        for way, several in transfer_stats_data.get("job_seconds", {}).items():
            for seconds in several:
                self._seconds.labels(*labels, way).observe(seconds)
