"""The parameters for fetching metrics pages, and the names of the plugin types that set them."""

from __future__ import annotations

from dataclasses import dataclass, field

from epp.scrape.reading.specs import EngineSpecs

DATA_SOURCE_TYPE = "metrics-data-source"
"""The plugin type that fetches pages, and the label by which failed fetches are counted."""
EXTRACTOR_TYPE = "core-metrics-extractor"
"""The plugin type that reads pages, and the label by which unreadable pages are counted."""

MIN_REFRESH_S = 0.05
"""Minimum interval between two readings of an endpoint's metrics. Source: the Go picker has the same minimum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapeParameters:
    """The parameters for fetching every endpoint's metrics page."""

    scheme: str = "http"
    path: str = "/metrics"
    port: int | None = None
    """The port of the metrics page; None for the serving port."""
    insecure_skip_verify: bool = True
    ca_cert_path: str = ""
    client_cert_path: str = ""
    client_key_path: str = ""
    interval_s: float | None = None
    """The interval between two readings of a busy endpoint; None for ``--refresh-metrics-interval``."""
    engines: EngineSpecs = field(default_factory=EngineSpecs)
    """The metrics to read from a page, by kind of engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMetricNames:
    """The values of the older flags ``--*-metric``: the names of vLLM's metrics; None for the usual name, empty for no
    metric."""

    waiting: str | None = None
    running: str | None = None
    kv_usage: str | None = None
    lora: str | None = None
    cache_info: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSourceOptions:
    """The values of the older flags ``--model-server-metrics-*``, for the default metrics source."""

    scheme: str = "http"
    path: str = "/metrics"
    port: int | None = None
    """The port of the metrics page; None for the serving port."""
    insecure_skip_verify: bool = True
    names: EngineMetricNames = EngineMetricNames()
