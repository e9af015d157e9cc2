"""How every endpoint's metrics page is fetched, and what the plugin types that decide it are called."""

from __future__ import annotations

from dataclasses import dataclass, field

from epp.scrape.reading.specs import EngineSpecs

DATA_SOURCE_TYPE = "metrics-data-source"
"""The plugin type that fetches pages, and the label by which failed fetches are counted."""
EXTRACTOR_TYPE = "core-metrics-extractor"
"""The plugin type that reads pages, and the label by which unreadable pages are counted."""

MIN_REFRESH_S = 0.05
"""The least interval between two reads of an endpoint's metrics. Source: the Go picker clamps to it as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapeParameters:
    """How every endpoint's metrics page is fetched."""

    scheme: str = "http"
    path: str = "/metrics"
    port: int | None = None
    """None for the serving port."""
    insecure_skip_verify: bool = True
    ca_cert_path: str = ""
    client_cert_path: str = ""
    client_key_path: str = ""
    interval_s: float | None = None
    """Between two reads of a busy endpoint; None for ``--refresh-metrics-interval``."""
    engines: EngineSpecs = field(default_factory=EngineSpecs)
    """What is read of a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMetricNames:
    """The older flags ``--*-metric``: what vLLM's metrics are called; None for their usual names, empty for none."""

    waiting: str | None = None
    running: str | None = None
    kv_usage: str | None = None
    lora: str | None = None
    cache_info: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSourceOptions:
    """The older flags ``--model-server-metrics-*``: how the default metrics source reads an engine's metrics."""

    scheme: str = "http"
    path: str = "/metrics"
    port: int | None = None
    """None for the serving port."""
    insecure_skip_verify: bool = True
    names: EngineMetricNames = EngineMetricNames()
