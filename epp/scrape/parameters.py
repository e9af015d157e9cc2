"""How every endpoint's metrics page is fetched, and what the plugin types that decide it are called."""

from __future__ import annotations

from dataclasses import dataclass, field

from epp.scrape.reading.specs import Engines

DATA_SOURCE_TYPE = "metrics-data-source"
"""The plugin type that fetches pages, and the label by which failed fetches are counted."""
EXTRACTOR_TYPE = "core-metrics-extractor"
"""The plugin type that reads pages, and the label by which unreadable pages are counted."""


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
    engines: Engines = field(default_factory=Engines)
    """What is read of a page."""
