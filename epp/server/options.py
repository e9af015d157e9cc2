"""The options of ``tierwise serve`` as typed values, checked by its flags. Nothing reads ``sys.argv`` after this.

Every command has its options in a file of this name, and beside it ``flags.py``, which makes them. Units: ``_s``
seconds, ``_bytes`` bytes. Addresses are ``host:port`` with IPv6 in brackets; a host may be a name, which is resolved
where the pool is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from epp.explain.options import DebugOptions
from epp.extproc.options import ErrorFormat
from epp.ports.options import MetricsTlsOptions, TlsOptions
from epp.runtime.options import LogOptions
from epp.scrape.parameters import MetricsSourceOptions
from epp.tracing.settings import TraceSettings


class Transport(Enum):
    """Who speaks HTTP/2 and gRPC to the proxy."""

    WIRE = "wire"
    """``epp.wire.server``, our own."""
    GRPCIO = "grpcio"
    """``epp.wire.aio``, grpcio's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """``tierwise serve``: the picker alone, beside a proxy that somebody else runs."""

    config_file: Path | None = None
    config_text: str | None = None
    """At most one of the two is set; with neither, the default profile."""
    watch_config: bool = True
    """Whether changes of ``config_file`` take effect without a restart."""
    endpoints: tuple[str, ...] = ()
    """Fixed endpoints; empty when the config's discovery says them."""

    pool_name: str = "epp"
    pool_namespace: str = "default"
    pool_group: str = "inference.networking.k8s.io"

    host: str = "0.0.0.0"
    grpc_port: int = 9002
    """0 takes a free port, here and below."""
    grpc_health_port: int = 9003
    metrics_port: int = 9090
    transport: Transport = Transport.WIRE
    tls: TlsOptions | None = TlsOptions()  # frozen, so one default value may be shared
    """None serves plaintext (``--secure-serving=false``)."""
    metrics_tls: MetricsTlsOptions | None = None
    """None serves /metrics in plaintext."""
    grpc_max_recv_bytes: int = 4 << 20
    max_request_bytes: int = 32 << 20
    """A request body beyond this is answered with 413."""
    max_held_bytes: int = 1 << 30
    """Beyond this, of all bodies that are incomplete or wait, requests are answered with 503."""
    drain_timeout_s: float = 30.0
    error_format: ErrorFormat = ErrorFormat.TEXT
    ask_kvengine: bool = False
    """Whether engines that run it are asked which tier cached tokens came from."""
    index_snapshot: Path | None = None
    """Where the prefix index is kept from one run to the next; None keeps it nowhere."""
    index_snapshot_interval_s: float = 60.0
    """How often it is written while requests are served; 0 is at the end only."""

    debug: DebugOptions = DebugOptions()
    disable_endpoint_subset_filter: bool = False
    emit_endpoint_scores: bool = False
    tell_decisions: bool = False

    refresh_metrics_interval_s: float = 0.05
    refresh_prometheus_metrics_interval_s: float = 5.0
    metrics_staleness_threshold_s: float = 2.0
    metrics_source: MetricsSourceOptions = MetricsSourceOptions()
    emit_deprecated_metrics: bool = False
    enable_grpc_stream_metrics: bool = False
    tracing: TraceSettings | None = None
    """None for no traces."""

    log: LogOptions = LogOptions()
    notices: tuple[str, ...] = ()
    """One sentence each, for the start log: flags that are deprecated, or that change nothing."""
    remarks: tuple[str, ...] = ()
    """The same, of what nobody needs to act on: defaults that are off here."""
