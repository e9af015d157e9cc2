"""From the values of flags to the options of a command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from epp.errors import ConfigError
from epp.flags.flag import SERVE, Flag
from epp.flags.values import is_boolean
from epp.ports import own_ports
from epp.scrape.reading.specs import VLLM
from epp.server.options import (
    MIN_REFRESH_S,
    CheckOptions,
    DemoOptions,
    ExplainOptions,
    LogFormat,
    MetricsTlsOptions,
    PrintOptions,
    ServeOptions,
    SimOptions,
    StandaloneOptions,
    TlsOptions,
)
from epp.tracing.settings import trace_settings

T = TypeVar("T")

Given = Mapping[str, Any]
"""What was set explicitly: a flag's name and its value; repeated flags hold the tuple of all their values."""

_OFF = (
    ("metrics-endpoint-auth", "it asks Kubernetes, and there is none"),
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
"""What vLLM's metrics are called."""


def normalise(arguments: Sequence[str], flags: Sequence[Flag]) -> list[str]:
    """``arguments`` with Go's spellings made plain: one dash for two, ``--flag`` of a boolean for ``--flag=true``.

    Raises: ConfigError for a boolean's value that stands apart from it.
    """
    by_name = {flag.name: flag for flag in flags}
    plain: list[str] = []
    rest = iter(arguments)
    after_boolean = ""  # such a flag, written alone
    for argument in rest:
        if after_boolean and is_boolean(argument):
            raise ConfigError(
                f"{after_boolean} {argument}: a boolean's value is written behind =; write {after_boolean}={argument}"
            )
        after_boolean = ""
        if argument == "--":
            return [*plain, argument, *rest]
        name, equals, value = argument.lstrip("-").partition("=")
        flag = by_name.get(name)
        if not argument.startswith("-") or argument.startswith("---"):
            plain.append(argument)
        elif flag is None:  # -h stays; a slip in a long name is still a long name
            plain.append(f"-{argument}" if len(name) > 1 and argument[1] != "-" else argument)
        elif equals or flag.is_boolean:
            plain.append(f"--{name}={value if equals else 'true'}")
            after_boolean = argument if not equals else ""
        else:
            following = next(rest, None)
            plain.append(f"--{name}" if following is None else f"--{name}={following}")
    return plain


def serve_options(given: Given, environment: Mapping[str, str]) -> ServeOptions:
    """The options of ``tierwise serve``. Raises: ConfigError naming the flag."""
    _refuse(given)
    tracing = trace_settings(given.get("tracing"), environment)
    remarks = _off(given if tracing is None else {**given, "tracing": True})
    notices = _idle(given) + _interval_of_nothing(given)
    given = {name: value for name, value in given.items() if name != "tracing"}
    tls, metrics_tls = _encryption(given, notices)
    _log_flags(given)
    _one_config(given)
    _clamp_refresh(given, notices)
    _metric_names(given, notices)
    given.setdefault("pool-namespace", environment.get("NAMESPACE") or "default")
    for name in [name for name in ("pool-name", "pool-namespace", "pool-group") if given.get(name) == ""]:
        del given[name]
    if given.get("model-server-metrics-port") == 0:
        del given["model-server-metrics-port"]
    options = ServeOptions(
        notices=tuple(notices), remarks=remarks, endpoints=_endpoints(given), tls=tls, metrics_tls=metrics_tls
    )
    options = own_ports.of_serve(_set(options, given, SERVE))
    return replace(options, tracing=tracing, max_held_bytes=_max_held_bytes(given, options))


def standalone_options(given: Given, flags: Sequence[Flag], environment: Mapping[str, str]) -> StandaloneOptions:
    """The options of ``tierwise standalone``. Raises: ConfigError naming the flag."""
    given = dict(given)
    tracing = trace_settings(given.pop("tracing", None), environment)
    notices = _interval_of_nothing(given)
    _one_config(given)
    _clamp_refresh(given, notices)
    if given.get("endpoint") and given.get("endpoints-file"):
        raise ConfigError("--endpoint and --endpoints-file both say what to route to; give one of them")
    closed = given.pop("fail-closed", None)
    if closed is not None:
        if given.get("fail-open") == closed:
            raise ConfigError(f"--fail-open and --fail-closed cannot both be {str(closed).lower()}; give one of them")
        given["fail-open"] = not closed
    made = StandaloneOptions(
        notices=tuple(notices),
        endpoints=_endpoints(given),
        open_paths=tuple(given.get("open-path", ())),
        tracing=tracing,
    )
    made = own_ports.of_standalone(_set(made, given, flags))
    return replace(made, max_held_bytes=_max_held_bytes(given, made))


def explain_options(given: Given, flags: Sequence[Flag]) -> ExplainOptions:
    """The options of ``tierwise explain``. Raises: ConfigError for flags that exclude each other."""
    if given.get("body") and "prompt" in given:
        raise ConfigError("--body and --prompt exclude each other; give one of them")
    if "model" in given and "prompt" not in given:
        raise ConfigError("--model has no meaning without --prompt: a body names its model itself")
    return _set(ExplainOptions(headers=tuple(given.get("header", ()))), given, flags)


def check_options(given: Given, flags: Sequence[Flag]) -> CheckOptions:
    """The options of ``tierwise check``. Raises: ConfigError for two configurations."""
    given = dict(given)
    _one_config(given)
    return _set(CheckOptions(), given, flags)


def print_options(given: Given) -> PrintOptions:
    """The options of ``tierwise print``."""
    return PrintOptions(name=given.get("name"))


def sim_options(given: Given, flags: Sequence[Flag]) -> SimOptions:
    """The options of ``tierwise sim``. Raises: ConfigError when the ports do not exist."""
    names, adapters = given.get("served-model-name", ()), given.get("lora-modules", ())
    options = _set(SimOptions(served_model_names=names, adapters=adapters), given, flags)
    ports = {"port": options.port, "kv-events-port": options.kv_events_port, "kv-replay-port": options.kv_replay_port}
    for name, port in ports.items():
        last = (port or 0) + options.endpoints - 1
        if port and last > 65535:
            raise ConfigError(f"--{name}={port} with --endpoints={options.endpoints} ends at port {last}, beyond 65535")
    if options.kv_replay_port is not None and options.kv_events_port is None:
        raise ConfigError("--kv-replay-port: there are no events without --kv-events-port; write both")
    return options


def demo_options(given: Given, flags: Sequence[Flag]) -> DemoOptions:
    """The options of ``tierwise demo``."""
    return _set(DemoOptions(endpoints=_endpoints(given)), given, flags)


def _off(given: Given) -> tuple[str, ...]:
    """One line for all that the Go picker does unless told otherwise, and that is not done here."""
    off = [f"--{name} ({why})" for name, why in _OFF if name not in given]
    return (f"on by default in the Go picker and off here: {', '.join(off)}",) if off else ()


def _idle(given: Given) -> list[str]:
    """One line for all that was asked for and changes nothing."""
    idle = [
        f"--{flag.name}={_written(given[flag.name])} ({flag.idle})"
        for flag in SERVE
        if flag.idle and flag.name in given and given[flag.name] != flag.harmless
    ]
    return [f"accepted, and without effect: {', '.join(idle)}"] if idle else []


def _interval_of_nothing(given: Given) -> list[str]:
    if given.get("index-snapshot-interval") is None or given.get("index-snapshot") is not None:
        return []
    return ["--index-snapshot-interval changes nothing without --index-snapshot, which names the file"]


def _encryption(given: dict[str, Any], notices: list[str]) -> tuple[TlsOptions | None, MetricsTlsOptions | None]:
    """Both ports' encryption; takes its flags out of ``given``. Raises: ConfigError for one without a meaning."""
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


def _refuse(given: Given) -> None:
    for flag in SERVE:
        if flag.refusal and flag.name in given and given[flag.name] != flag.harmless:
            raise ConfigError(f"--{flag.name}={_written(given[flag.name])} cannot be honoured: {flag.refusal}")


def _written(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _log_flags(given: dict[str, Any]) -> None:
    """zap's own flags win over ``--v``, as they do in the Go picker."""
    if "zap-log-level" in given:
        given["v"] = given.pop("zap-log-level")
    if "zap-devel" in given:
        given.setdefault("zap-encoder", LogFormat.CONSOLE if given["zap-devel"] else LogFormat.JSON)
        del given["zap-devel"]


def _one_config(given: dict[str, Any]) -> None:
    if given.get("config-file") and given.get("config-text"):
        raise ConfigError("--config-file and --config-text exclude each other; give one of them")
    for name in ("config-file", "config-text"):
        if not given.get(name):
            given.pop(name, None)  # Go users write an empty value for "none"


def _max_held_bytes(given: Given, options: ServeOptions | StandaloneOptions) -> int:
    """``--max-held-bytes``: a body of the largest size must fit, in whatever pieces a proxy sends it."""
    least = 2 * options.max_request_bytes
    if "max-held-bytes" in given and options.max_held_bytes < least:
        raise ConfigError(
            f"--max-held-bytes={options.max_held_bytes}: must be at least {least:,}, twice --max-request-bytes"
        )
    return max(least, options.max_held_bytes)


def _clamp_refresh(given: dict[str, Any], notices: list[str]) -> None:
    asked = given.get("refresh-metrics-interval")
    if asked is not None and asked < MIN_REFRESH_S:
        notices.append(f"--refresh-metrics-interval={asked * 1000:g}ms is raised to the least, 50ms")
        given["refresh-metrics-interval"] = MIN_REFRESH_S


def _metric_names(given: dict[str, Any], notices: list[str]) -> None:
    """Say that the flags are deprecated where they ask for something; vLLM's own names do not."""
    for name, usual in _METRICS.items():
        if given.get(name) == usual:
            del given[name]
    if names := [f"--{name}" for name in _METRICS if name in given]:
        some = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"
        notices.append(f"{some} deprecated; write engineConfigs of a core-metrics-extractor into the configuration")


def _endpoints(given: Given) -> tuple[str, ...]:
    found = [endpoint for several in given.get("endpoint", ()) for endpoint in several]
    twice = sorted({endpoint for endpoint in found if found.count(endpoint) > 1})
    if twice:
        raise ConfigError(f"--endpoint={twice[0]} is given twice; an endpoint is one server")
    return tuple(found)


def _set(options: T, given: Given, flags: Sequence[Flag]) -> T:
    """``options`` with the fields of the flags in ``given``."""
    for flag in flags:
        if flag.field and flag.name in given and not flag.repeated:
            options = _with(options, flag.field, given[flag.name])
    return options


def _with(options: Any, field: str, value: object) -> Any:
    head, _, inner = field.partition(".")
    return replace(options, **{head: _with(getattr(options, head), inner, value) if inner else value})
