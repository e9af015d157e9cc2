"""The flags that ``tierwise serve`` and ``tierwise standalone`` share, and the checks of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from epp.errors import ConfigError
from epp.explain.options import DebugOptions
from epp.extproc.options import ErrorFormat
from epp.flags import values
from epp.flags.arguments import Given
from epp.flags.common import endpoints_of
from epp.flags.flag import Flag, grouped
from epp.ports.own_ports import Wanted
from epp.runtime.options import LogFormat
from epp.scrape.parameters import MIN_REFRESH_S
from epp.server.settings import Settings, Transport
from epp.tracing.settings import TraceSettings

_YES = values.boolean
DAY_S = 86_400.0


MAX_REQUEST = Flag(
    "max-request-bytes", values.size(1024, 1 << 30), "picker.exchange.max_request_bytes",
    "answer larger request bodies with 413 (default 32MiB)", "SIZE",
)  # fmt: skip


MAX_HELD = Flag(
    "max-held-bytes", values.size(1024, 1 << 40), "picker.max_held_bytes",
    "answer requests with 503 while bodies that are incomplete or wait are more, all together (default 1GiB)", "SIZE",
)  # fmt: skip


TRANSPORT = Flag(
    "transport", values.one_of(Transport), "picker.transport",
    "who speaks gRPC to the proxy: our own server, or grpcio's (default wire)", "wire|grpcio",
)  # fmt: skip


DRAIN = Flag(
    "drain-timeout", values.duration(0, DAY_S), "drain_timeout_s",
    "how long to go on serving after SIGTERM (default 30s)", "DURATION",
)  # fmt: skip


ERRORS = Flag(
    "error-format", values.one_of(ErrorFormat), "picker.exchange.error_format",
    "how refusals are written: as the client's API writes errors, or as the Go picker's text", "text|api",
)  # fmt: skip


SNAPSHOT = Flag(
    "index-snapshot", values.path, "picker.snapshot.file",
    "keep what the endpoints hold in this file from one run to the next (default: nowhere)", "FILE",
)  # fmt: skip


SNAPSHOT_INTERVAL = Flag(
    "index-snapshot-interval", values.duration(1, DAY_S, or_zero=True), "picker.snapshot.interval_s",
    "how often that file is written while requests are served; 0 is at the end only (default 1m)", "DURATION",
)  # fmt: skip


ASK = Flag(
    "ask-kvengine",
    _YES,
    "picker.exchange.ask_kvengine",
    "where a response is seen, ask kvengine which tier cached tokens came from (default false)",
)


DEBUG = (
    Flag("debug", _YES, "picker.debug.enabled", "show internals on a port of their own (default true)"),
    Flag("debug-host", values.text, "picker.debug.host", "its address; it asks for no password (default 127.0.0.1)",
         "ADDRESS"),
    Flag("debug-port", values.port, "picker.debug.port", "its port (default 9091, or a free one where that is taken)",
         "PORT"),
)  # fmt: skip


TELL = Flag(
    "tell-decisions", _YES, "picker.exchange.tell_decisions",
    "tell clients that send the header x-tierwise-decision why a request went where it did (default false)",
)  # fmt: skip


EMIT_SCORES = Flag(
    "emit-endpoint-scores", _YES, "picker.exchange.emit_endpoint_scores", "put all scores into the dynamic metadata"
)


SCRAPING = grouped(
    "Reading the engines' metrics",
    Flag("refresh-metrics-interval", values.duration(0, 3600), "picker.pace.busy_s",
         "between two reads of an endpoint that has requests of ours; at least 50ms (default 50ms); "
         "others are read once a second, and at once when a request goes there", "DURATION"),
    Flag("refresh-prometheus-metrics-interval", values.duration(0, 3600), "",
         "accepted: the pool's averages are computed at each read of /metrics", "DURATION"),
    Flag("metrics-staleness-threshold", values.duration(0, 3600), "picker.pace.staleness_s",
         "an endpoint's numbers are stale after this (default 2s)", "DURATION"),
)  # fmt: skip


POOL_NAME = Flag("pool-name", values.text, "picker.pool_name", "name of the pool in metrics (default epp)", "NAME")


ZAP_ENCODER = Flag("zap-encoder", values.one_of(LogFormat), "log.format", "log lines as text or JSON", "console|json")


TRACING = Flag(
    "tracing", _YES, "",
    "write traces, where the variables OTEL_* say (default: true when they name an exporter or a collector)",
)  # fmt: skip


def interval_of_nothing(given: Given) -> list[str]:
    """Return a notice where an interval was given for a snapshot that is not written."""
    if given.get("index-snapshot-interval") is None or given.get("index-snapshot") is not None:
        return []
    return ["--index-snapshot-interval changes nothing without --index-snapshot, which names the file"]


def completed(picker: Settings, given: Given, tracing: TraceSettings | None) -> Settings:
    """Return ``picker`` with the values that follow from several flags or from the environment.

    The limit of all held bodies is at least what one body of the largest size needs, in whatever pieces a proxy sends
    it. Raises: ConfigError where a flag sets less, or an endpoint is given twice.
    """
    least = 2 * picker.exchange.max_request_bytes
    if "max-held-bytes" in given and picker.max_held_bytes < least:
        raise ConfigError(
            f"--max-held-bytes={picker.max_held_bytes}: must be at least {least:,}, twice --max-request-bytes"
        )
    return replace(
        picker,
        endpoints=endpoints_of(given),
        max_held_bytes=max(least, picker.max_held_bytes),
        tracing=tracing,
    )


def clamp_refresh(given: dict[str, Any], notices: list[str]) -> None:
    """Raise an interval in ``given`` that is too short to the least, with a notice."""
    asked = given.get("refresh-metrics-interval")
    if asked is not None and asked < MIN_REFRESH_S:
        notices.append(f"--refresh-metrics-interval={asked * 1000:g}ms is raised to the least, 50ms")
        given["refresh-metrics-interval"] = MIN_REFRESH_S


def debug_port_of(debug: DebugOptions | None) -> Wanted:
    """Return the debug port if a flag chose it; the default one gives way to the others."""
    if debug is None or not debug.enabled or debug.port is None:
        return {}
    return {"--debug-port": (debug.host, debug.port)}
