"""The flags of ``tierwise serve``, and the function that makes its options of them.

The command accepts all flags of the Go picker, of v0.9 and of later versions, so that its arguments work unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from epp.config.flags import CONFIG, config_of_environment, one_config
from epp.errors import ConfigError
from epp.flags import values
from epp.flags.arguments import Given, with_fields
from epp.flags.common import ENDPOINTS, VERBOSITY
from epp.flags.flag import Flag, grouped, idle
from epp.ports.options import MetricsTlsOptions, TlsOptions
from epp.ports.own_ports import refuse_shared
from epp.runtime.options import LogFormat
from epp.scrape.reading.specs import VLLM, parse_spec
from epp.server import shared_flags as shared
from epp.server.kube_flags import KUBE, with_cluster
from epp.server.options import ServeOptions
from epp.server.settings import Settings
from epp.tracing.settings import trace_settings

_YES = values.boolean
AUTH = "metrics-endpoint-auth"
_OFF = (
    (AUTH, "but on in a pod that takes its endpoints from the cluster"),
    ("tracing", "OTEL_TRACES_EXPORTER or OTEL_EXPORTER_OTLP_ENDPOINT turn it on, too"),
    ("enable-pprof", "Go profiles do not exist here"),
)
"""Flags that are on by default in the Go picker and off here, and why."""


_METRICS = {
    "total-queued-requests-metric": str(VLLM.waiting),
    "total-running-requests-metric": str(VLLM.running),
    "kv-cache-usage-percentage-metric": str(VLLM.kv_usage[0]),
    "lora-info-metric": str(VLLM.lora),
    "cache-info-metric": str(VLLM.cache_info),
}
"""The names of vLLM's metrics, by flag."""


def metric_spec(value: str) -> str:
    """Read the name of a metric, ``name`` or ``name{label=value,...}``; an empty text means no metric."""
    if value:
        parse_spec(value)
    return value


SERVE: tuple[Flag, ...] = (
    *grouped(
        "Configuration",
        *CONFIG,
        Flag("check", _YES, "check", "serve nothing: only check these flags and the configuration"),
    ),
    *grouped("The pool", ENDPOINTS),
    *KUBE,
    *grouped(
        "Listening",
        Flag("host", values.text, "picker.host", "address to listen on (default 0.0.0.0)", "ADDRESS"),
        Flag("grpc-port", values.port, "picker.grpc_port", "ext-proc (default 9002)", "PORT"),
        Flag("grpc-health-port", values.port, "picker.health_port", "gRPC health, plaintext (default 9003)", "PORT"),
        Flag("metrics-port", values.port, "picker.metrics_port", "/metrics over HTTP (default 9090)", "PORT"),
        *shared.DEBUG,
        shared.TRANSPORT,
        Flag("grpc-max-recv-msg-size", values.unless_empty(values.size(1024, 1 << 30)), "picker.max_message_bytes",
             "largest gRPC message taken (default 4MiB)", "SIZE"),
        Flag("grpc-max-send-msg-size", values.unless_empty(values.size(1 << 16, 1 << 31)), "",
             "largest gRPC message sent; bodies go in pieces of 62,000 bytes, so smaller limits are refused", "SIZE"),
        shared.MAX_REQUEST,
        shared.MAX_HELD,
        shared.DRAIN,
        Flag("proxy-admin-port", values.port, "proxy_admin_port",
             "admin port of an Envoy in this pod: after SIGTERM its clients are told to leave, and it is served for "
             "all of --drain-timeout", "PORT"),
        replace(shared.ERRORS, help=f"{shared.ERRORS.help} (default text)"),
        Flag("health-checking", _YES, "", "gRPC health on the ext-proc port too; here it always is"),
    ),
    *grouped(
        "Encryption",
        Flag("secure-serving", _YES, "", "TLS on the ext-proc port (default true)"),
        Flag("cert-path", values.path, "picker.tls.cert_path",
             "folder with tls.crt and tls.key; none makes a self-signed one", "FOLDER"),
        Flag("tls-min-version", values.word("", "VersionTLS12", "VersionTLS13"), "picker.tls.min_version",
             "lowest TLS version (default VersionTLS12)", "VERSION"),
        Flag("tls-cipher-suites", values.words, "picker.tls.cipher_suites", "TLS 1.2 suites by their IANA names",
             "LIST"),
        Flag("enable-cert-reload", _YES, "picker.tls.reload", "follow the files of --cert-path and --metrics-cert-dir"),
        Flag("metrics-cert-dir", values.path, "picker.metrics_tls.cert_dir",
             "folder with tls.crt and tls.key: TLS on the metrics port (default: none, plain HTTP)", "FOLDER"),
        Flag("metrics-client-ca-file", values.path, "picker.metrics_tls.client_ca_file",
             "on the metrics port let in only clients with a certificate of these authorities", "FILE"),
    ),
    *grouped(
        "Picking",
        shared.EMIT_SCORES, shared.TELL,
        shared.SNAPSHOT,
        shared.SNAPSHOT_INTERVAL,
        Flag("disable-endpoint-subset-filter", _YES, "",
             "ignore the proxy's hint which endpoints it allows"),
        Flag("allow-experimental-plugins", _YES, "", "accepted; no plugin here is experimental"),
    ),
    *shared.SCRAPING,
    *grouped(
        "Metrics and traces",
        shared.TRACING,
        shared.ASK,
        Flag("enable-grpc-stream-metrics", _YES, "picker.stream_metrics",
             "count ext-proc streams, how long they last and how they end (default false)"),
        Flag("emit-deprecated-metrics", _YES, "picker.deprecated_metrics",
             "expose the older names of metrics, too (default false)"),
    ),
    *grouped(
        "Older flags for the default metrics source",
        Flag("model-server-metrics-scheme", values.word("http", "https"), "metrics_source.scheme", "", "http|https"),
        Flag("model-server-metrics-path", values.text, "metrics_source.path", "", "PATH"),
        Flag("model-server-metrics-port", values.port, "metrics_source.port", "0 for the serving port", "PORT"),
        Flag("model-server-metrics-https-insecure-skip-verify", _YES, "metrics_source.insecure_skip_verify", ""),
        Flag("total-queued-requests-metric", metric_spec, "metrics_source.names.waiting",
             "what vLLM's metric is called; here and below a core-metrics-extractor in the configuration wins", "SPEC"),
        Flag("total-running-requests-metric", metric_spec, "metrics_source.names.running", "", "SPEC"),
        Flag("kv-cache-usage-percentage-metric", metric_spec, "metrics_source.names.kv_usage", "", "SPEC"),
        Flag("lora-info-metric", metric_spec, "metrics_source.names.lora", "", "SPEC"),
        Flag("cache-info-metric", metric_spec, "metrics_source.names.cache_info", "", "SPEC"),
    ),
    *grouped(
        "Logging",
        VERBOSITY,
        shared.ZAP_ENCODER,
        Flag("zap-devel", _YES, "zap_devel", "true for text, false for JSON; --zap-encoder wins"),
        Flag("zap-log-level", values.log_level, "zap_log_level", "as --v, and wins over it", "LEVEL"),
    ),
    idle("enable-pprof", _YES, "Go profiles do not exist here; use py-spy on the process", False),
    idle("zap-stacktrace-level", values.text, "tracebacks are logged with every unexpected error"),
    idle("zap-time-encoding", values.text, "log times are ISO 8601", "iso8601"),
)  # fmt: skip
"""Source: the Go picker's ``pkg/epp/server/options.go``, v0.9.0 and later; ``endpoint``, ``host``, ``transport``,
``watch-config``, ``check``, ``max-request-bytes``, ``index-snapshot``, ``index-snapshot-interval``, ``ask-kvengine``
and ``emit-deprecated-metrics`` are ours."""


def serve_options(given: Given, environment: Mapping[str, str]) -> ServeOptions:
    """Return the options of ``tierwise serve``. Raises: ConfigError naming the flag."""
    tracing = trace_settings(given.get("tracing"), environment)
    on = {"tracing": tracing, AUTH: given.get("endpoint-selector")}
    remarks = _off({**given, **{name: True for name, asked in on.items() if asked}})
    notices = _without_effect(given) + shared.interval_of_nothing(given)
    given = {name: value for name, value in given.items() if name != "tracing"}
    tls, metrics_tls = _encryption(given, notices)
    _log_flags(given)
    one_config(given)
    config_of_environment(given, environment)
    shared.clamp_refresh(given, notices)
    _metric_names(given, notices)
    if given.get("pool-name") == "":
        del given["pool-name"]
    if given.get("model-server-metrics-port") == 0:
        del given["model-server-metrics-port"]
    options = with_fields(ServeOptions(remarks=remarks), given, SERVE)
    picker = replace(
        with_cluster(shared.completed(options.picker, given, tracing), given, environment, notices),
        tls=tls,
        metrics_tls=metrics_tls,
        exchange=replace(options.picker.exchange, any_subset=not given.get("disable-endpoint-subset-filter", False)),
    )
    _refuse_shared_ports(picker)
    return replace(options, picker=picker, notices=tuple(notices))


def _off(given: Given) -> tuple[str, ...]:
    """Return one line about the defaults of the Go picker that are off here."""
    off = [f"--{name} ({why})" for name, why in _OFF if name not in given]
    return (f"on by default in the Go picker and off here: {', '.join(off)}",) if off else ()


def _without_effect(given: Given) -> list[str]:
    """Return one line about the given flags that change nothing."""
    unused = [
        f"--{flag.name}={_written(given[flag.name])} ({flag.idle})"
        for flag in SERVE
        if flag.idle and flag.name in given and given[flag.name] != flag.harmless
    ]
    return [f"accepted, and without effect: {', '.join(unused)}"] if unused else []


def _encryption(given: dict[str, Any], notices: list[str]) -> tuple[TlsOptions | None, MetricsTlsOptions | None]:
    """Return the encryption of both ports, and remove its flags from ``given``.

    Raises: ConfigError for a flag that has no meaning beside the others.
    """
    secure = given.pop("secure-serving", True)
    cert_path, cert_dir = given.pop("cert-path", None), given.pop("metrics-cert-dir", None)
    client_ca_file = given.pop("metrics-client-ca-file", None)
    asked = {flag: given.pop(flag, None) for flag in ("tls-min-version", "tls-cipher-suites", "enable-cert-reload")}
    if client_ca_file and not cert_dir:
        raise ConfigError("--metrics-client-ca-file has no meaning without --metrics-cert-dir; give both, or neither")
    if not secure:
        without_meaning = {"cert-path": cert_path} | ({} if cert_dir else asked)
        for flag, value in without_meaning.items():
            if value:
                raise ConfigError(f"--{flag} has no meaning with --secure-serving=false; leave out one of the two")
    elif asked["enable-cert-reload"] and not (cert_path or cert_dir):
        notices.append("--enable-cert-reload has nothing to follow: the certificate is self-signed and in no file")
    both = TlsOptions(
        cert_path=cert_path,
        min_version=asked["tls-min-version"] or TlsOptions().min_version,
        cipher_suites=asked["tls-cipher-suites"] or (),
        reload=bool(asked["enable-cert-reload"]),
    )
    metrics_tls = MetricsTlsOptions(cert_dir=cert_dir, client_ca_file=client_ca_file, tls=both) if cert_dir else None
    return both if secure else None, metrics_tls


def _written(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _log_flags(given: dict[str, Any]) -> None:
    """Let zap's own flags win over ``--v``, as they do in the Go picker."""
    if "zap-log-level" in given:
        given["v"] = given.pop("zap-log-level")
    if "zap-devel" in given:
        given.setdefault("zap-encoder", LogFormat.CONSOLE if given["zap-devel"] else LogFormat.JSON)
        del given["zap-devel"]


def _metric_names(given: dict[str, Any], notices: list[str]) -> None:
    """Add a notice about the deprecated flags that name metrics other than vLLM's own."""
    for name, usual in _METRICS.items():
        if given.get(name) == usual:
            del given[name]
    if names := [f"--{name}" for name in _METRICS if name in given]:
        some = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"
        notices.append(f"{some} deprecated; write engineConfigs of a core-metrics-extractor into the configuration")


def _refuse_shared_ports(picker: Settings) -> None:
    """Check that no two ports are alike. Raises: ConfigError naming two that are."""
    refuse_shared(
        {
            "--grpc-port": (picker.host, picker.grpc_port),
            "--grpc-health-port": (picker.host, picker.health_port or 0),
            "--metrics-port": (picker.host, picker.metrics_port),
            **shared.debug_port_of(picker.debug),
        }
    )
