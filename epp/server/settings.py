"""What a picker is told besides its plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from epp.config.plan import Plan
from epp.explain.options import DebugOptions
from epp.extproc.exchange import ExchangeSettings
from epp.picking.body_budget import MAX_HELD_BYTES
from epp.ports.options import MetricsTlsOptions, TlsOptions
from epp.runtime.followed_files import FollowedFiles
from epp.scrape.pace import Pace
from epp.server.options import Transport
from epp.tracing.settings import TraceSettings
from epp.wire.http2.limits import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Ports: 0 takes a free one, None opens none."""

    pool_name: str = "epp"
    host: str = "127.0.0.1"
    grpc_port: int = 0
    health_port: int | None = None
    metrics_host: str = "127.0.0.1"
    metrics_port: int = 0
    transport: Transport = Transport.WIRE
    tls: TlsOptions | None = None
    metrics_tls: MetricsTlsOptions | None = None
    debug: DebugOptions | None = None
    options: object = None
    """The command's, to be shown on the debug port."""
    exchange: ExchangeSettings = field(default_factory=ExchangeSettings)
    max_held_bytes: int = MAX_HELD_BYTES
    """Of request bodies that are incomplete or wait, all together."""
    limits: Limits = field(default_factory=Limits)
    pace: Pace = field(default_factory=Pace)
    endpoints: tuple[str, ...] = ()
    """``host:port``; empty leaves them to the plan's discovery, or to ``endpoints_file``."""
    endpoints_file: Path | None = None
    sample_ratio: float = 1.0
    """Share of responses that the picker sees in full."""
    config_file: FollowedFiles | None = None
    """Read again with ``reread`` when it changes; it was ``seen`` before the plan was read."""
    reread: Callable[..., Plan] | None = None
    """The plan of the file as it is now; takes the one in use as ``before``. Raises: ConfigError."""
    index_snapshot: Path | None = None
    """Where what the endpoints hold is kept from one run to the next."""
    index_snapshot_interval_s: float = 0.0
    """How often it is written while requests are served; 0 is at the end only."""
    deprecated_metrics: bool = False
    """Expose the older names of metrics, too."""
    tracing: TraceSettings | None = None
    """Whether and where traces are written."""
    stream_metrics: bool = False
    """Count the ext-proc port's streams, their ends and how long they lasted."""
