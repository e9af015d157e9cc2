"""Older names of the same metrics, for dashboards that still use them; made on a scrape.

Source: the older names that the Go picker emits. They have fewer labels, so several current series may become one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from epp.histogram import Histogram
from epp.metrics.gauges import Histograms, Reading
from epp.metrics.tables import Metric

_MODELS = {"model_name": "model_name", "target_model_name": "target_model_name"}
_POOL = {"name": "name"}
_NONE: Mapping[str, str] = {}


class OlderName(NamedTuple):
    """An older name, and its labels by their current names; None for the same labels."""

    name: str
    labels: Mapping[str, str] | None = None


_OBJECTIVE = {
    "request": OlderName("request", _MODELS | {"priority": "priority"}),
    "request_error": OlderName("request_error", _MODELS | {"error_code": "error_code"}),
    "request_running": OlderName("running_requests", {"model_name": "model_name"}),
    "request_size_bytes": OlderName("request_sizes", _MODELS),
    "response_size_bytes": OlderName("response_sizes", _MODELS),
    "request_duration_seconds": OlderName("request_duration_seconds", _MODELS),
    "request_input_tokens": OlderName("input_tokens", _MODELS),
    "request_output_tokens": OlderName("output_tokens", _MODELS),
    "request_cached_tokens": OlderName("prompt_cached_tokens", _MODELS),
    "request_ntpot_seconds": OlderName("normalized_time_per_output_token_seconds", _MODELS),
}
_OF_POOL = {
    "average_kv_cache_utilization": OlderName("average_kv_cache_utilization", _POOL),
    "average_queue_size": OlderName("average_queue_size", _POOL),
    "average_running_requests": OlderName("average_running_requests", _POOL),
    "ready_endpoints": OlderName("ready_pods", _POOL),
    "per_endpoint_queue_size": OlderName("per_pod_queue_size", _POOL | {"model_server_endpoint": "model_server_pod"}),
}
_ATTEMPT = {name: name for name in ("status", "target_model_name", "namespace", "port")}
_EXTENSION = {
    "info": OlderName("info"),
    "plugin_duration_seconds": OlderName("plugin_duration_seconds"),
    "scheduler_e2e_duration_seconds": OlderName("scheduler_e2e_duration_seconds"),
    "scheduler_attempts": OlderName("scheduler_attempts", _ATTEMPT | {"endpoint_name": "pod_name"}),
    "prefix_indexer_size": OlderName("prefix_indexer_size", _NONE),
    "prefix_indexer_hit_ratio": OlderName("prefix_indexer_hit_ratio", _NONE),
    "prefix_indexer_hit_bytes": OlderName("prefix_indexer_hit_bytes", _NONE),
    "model_rewrite_decisions": OlderName("model_rewrite_decisions"),
    "flow_control_request_queue_duration_seconds": OlderName("flow_control_request_queue_duration_seconds"),
    "flow_control_dispatch_cycle_duration_seconds": OlderName("flow_control_dispatch_cycle_duration_seconds"),
    "flow_control_request_enqueue_duration_seconds": OlderName("flow_control_request_enqueue_duration_seconds"),
    "flow_control_queue_size": OlderName("flow_control_queue_size"),
    "flow_control_queue_bytes": OlderName("flow_control_queue_bytes"),
    "flow_control_pool_saturation": OlderName("flow_control_pool_saturation"),
}
_SCHEDULER = {name: OlderName(name) for name in ("datalayer_poll_errors", "datalayer_extract_errors")}

OLDER_NAMES: Mapping[str, OlderName] = {
    f"llm_d_epp_{today}": OlderName(prefix + older.name, older.labels)
    for prefix, names in (
        ("inference_objective_", _OBJECTIVE),
        ("inference_pool_", _OF_POOL),
        ("inference_extension_", _EXTENSION),
        ("llm_d_inference_scheduler_", _SCHEDULER),
    )
    for today, older in names.items()
}
"""The older names by the current ones; both without the suffix ``_total`` of a counter."""


def older_histograms(families: Iterable[Histograms]) -> Iterator[Histograms]:
    """Yield those of ``families`` that have an older name, under that name."""
    for metric, labelled in families:
        older = OLDER_NAMES.get(metric.name)
        if older is None:
            continue
        names, places = _kept(older, metric.labels)
        merged: dict[tuple[str, ...], Histogram] = {}
        for labels, histogram in labelled:
            key = tuple([labels[place] for place in places])
            if key in merged:
                merged[key].add(histogram)
            else:
                merged[key] = histogram.copy()
        yield Histograms(Metric(older.name, _help(metric.name), names, metric.bounds), merged.items())


def older_readings(readings: Iterable[Reading]) -> Iterator[Reading]:
    """Yield those of ``readings`` that have an older name, under that name."""
    for reading in readings:
        older = OLDER_NAMES.get(reading.name)
        if older is None:
            continue
        names, places = _kept(older, reading.labels)
        merged: dict[tuple[str, ...], float] = {}
        for labels, value in reading.samples:
            key = tuple([labels[place] for place in places])
            merged[key] = merged.get(key, 0) + value
        yield reading._replace(name=older.name, help=_help(reading.name), labels=names, samples=merged.items())


def _kept(older: OlderName, labels: tuple[str, ...]) -> tuple[tuple[str, ...], list[int]]:
    """Return the labels of ``older``, and the positions of their values among those of ``labels``."""
    renamed = {name: name for name in labels} if older.labels is None else older.labels
    kept = [(renamed[name], place) for place, name in enumerate(labels) if name in renamed]
    return tuple(name for name, _ in kept), [place for _, place in kept]


def _help(name: str) -> str:
    return f"Deprecated: {name}."
