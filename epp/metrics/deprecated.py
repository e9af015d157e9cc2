"""Older names of the same numbers, for dashboards that still ask for them; made when somebody scrapes.

Source: what the Go picker emits beside its current names: fewer labels, so that several series of ours may be one here.
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


class Twin(NamedTuple):
    """An older name, and its labels by the names that they have today; None for the same labels."""

    name: str
    labels: Mapping[str, str] | None = None


_OBJECTIVE = {
    "request": Twin("request", _MODELS | {"priority": "priority"}),
    "request_error": Twin("request_error", _MODELS | {"error_code": "error_code"}),
    "request_running": Twin("running_requests", {"model_name": "model_name"}),
    "request_size_bytes": Twin("request_sizes", _MODELS),
    "response_size_bytes": Twin("response_sizes", _MODELS),
    "request_duration_seconds": Twin("request_duration_seconds", _MODELS),
    "request_input_tokens": Twin("input_tokens", _MODELS),
    "request_output_tokens": Twin("output_tokens", _MODELS),
    "request_cached_tokens": Twin("prompt_cached_tokens", _MODELS),
    "request_ntpot_seconds": Twin("normalized_time_per_output_token_seconds", _MODELS),
}
_OF_POOL = {
    "average_kv_cache_utilization": Twin("average_kv_cache_utilization", _POOL),
    "average_queue_size": Twin("average_queue_size", _POOL),
    "average_running_requests": Twin("average_running_requests", _POOL),
    "ready_endpoints": Twin("ready_pods", _POOL),
    "per_endpoint_queue_size": Twin("per_pod_queue_size", _POOL | {"model_server_endpoint": "model_server_pod"}),
}
_ATTEMPT = {name: name for name in ("status", "target_model_name", "namespace", "port")}
_EXTENSION = {
    "info": Twin("info"),
    "plugin_duration_seconds": Twin("plugin_duration_seconds"),
    "scheduler_e2e_duration_seconds": Twin("scheduler_e2e_duration_seconds"),
    "scheduler_attempts": Twin("scheduler_attempts", _ATTEMPT | {"endpoint_name": "pod_name"}),
    "prefix_indexer_size": Twin("prefix_indexer_size", _NONE),
    "prefix_indexer_hit_ratio": Twin("prefix_indexer_hit_ratio", _NONE),
    "prefix_indexer_hit_bytes": Twin("prefix_indexer_hit_bytes", _NONE),
    "model_rewrite_decisions": Twin("model_rewrite_decisions"),
    "flow_control_request_queue_duration_seconds": Twin("flow_control_request_queue_duration_seconds"),
    "flow_control_dispatch_cycle_duration_seconds": Twin("flow_control_dispatch_cycle_duration_seconds"),
    "flow_control_request_enqueue_duration_seconds": Twin("flow_control_request_enqueue_duration_seconds"),
    "flow_control_queue_size": Twin("flow_control_queue_size"),
    "flow_control_queue_bytes": Twin("flow_control_queue_bytes"),
    "flow_control_pool_saturation": Twin("flow_control_pool_saturation"),
}
_SCHEDULER = {name: Twin(name) for name in ("datalayer_poll_errors", "datalayer_extract_errors")}

TWINS: Mapping[str, Twin] = {
    f"llm_d_epp_{today}": Twin(prefix + twin.name, twin.labels)
    for prefix, twins in (
        ("inference_objective_", _OBJECTIVE),
        ("inference_pool_", _OF_POOL),
        ("inference_extension_", _EXTENSION),
        ("llm_d_inference_scheduler_", _SCHEDULER),
    )
    for today, twin in twins.items()
}
"""By today's name; both without the suffix ``_total`` of a counter."""


def older_histograms(families: Iterable[Histograms]) -> Iterator[Histograms]:
    """Those of ``families`` that have an older name, under it."""
    for metric, labelled in families:
        twin = TWINS.get(metric.name)
        if twin is None:
            continue
        names, places = _kept(twin, metric.labels)
        merged: dict[tuple[str, ...], Histogram] = {}
        for labels, histogram in labelled:
            key = tuple([labels[place] for place in places])
            if key in merged:
                merged[key].add(histogram)
            else:
                merged[key] = histogram.copy()
        yield Histograms(Metric(twin.name, _help(metric.name), names, metric.bounds), merged.items())


def older_readings(readings: Iterable[Reading]) -> Iterator[Reading]:
    """Those of ``readings`` that have an older name, under it."""
    for reading in readings:
        twin = TWINS.get(reading.name)
        if twin is None:
            continue
        names, places = _kept(twin, reading.labels)
        merged: dict[tuple[str, ...], float] = {}
        for labels, value in reading.samples:
            key = tuple([labels[place] for place in places])
            merged[key] = merged.get(key, 0) + value
        yield reading._replace(name=twin.name, help=_help(reading.name), labels=names, samples=merged.items())


def _kept(twin: Twin, labels: tuple[str, ...]) -> tuple[tuple[str, ...], list[int]]:
    """The labels of ``twin``, and where their values stand among those of ``labels``."""
    renamed = {name: name for name in labels} if twin.labels is None else twin.labels
    kept = [(renamed[name], place) for place, name in enumerate(labels) if name in renamed]
    return tuple(name for name, _ in kept), [place for _, place in kept]


def _help(name: str) -> str:
    return f"Deprecated: {name}."
