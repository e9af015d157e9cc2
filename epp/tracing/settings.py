"""Whether and where traces are written, according to the flag and OpenTelemetry's variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from epp.errors import ConfigError
from epp.tracing.sampler import Sampler, sampler_named

SERVICE_NAME = "tierwise"
ENDPOINT = "http://localhost:4317"
_DEFAULT_SAMPLER = Sampler()
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class Exporter(Enum):
    """The exporter that takes the spans."""

    OTLP = "otlp"
    """A collector, by OTLP over gRPC."""
    CONSOLE = "console"
    """Standard output, in JSON."""


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """The settings of all traces of a process.

    Headers and certificates for the collector are secrets. They are left to the exporter, which reads its own variables
    (``OTEL_EXPORTER_OTLP_HEADERS``, ``..._CERTIFICATE``).
    """

    exporter: Exporter = Exporter.CONSOLE
    endpoint: str = ENDPOINT
    sampler: Sampler = _DEFAULT_SAMPLER
    service_name: str = SERVICE_NAME
    demanded: bool = False
    """Whether the flag asks for traces. A missing library is then an error, otherwise a warning."""


def trace_settings(flag: bool | None, environment: Mapping[str, str]) -> TraceSettings | None:
    """Return the settings that ``--tracing`` (None if not given) and the variables ask for; None for no traces.

    Without the flag, traces are written if a variable names an exporter or a collector. With the flag and no such
    variable, they go to standard output, as in the Go picker.

    Raises: ConfigError naming the variable.
    """
    named = environment.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    endpoint = next((environment[name].strip() for name in _ENDPOINTS if environment.get(name, "").strip()), "")
    disabled = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or named == "none"
    if flag is False or disabled or (flag is None and not named and not endpoint):
        return None
    named = named or ("otlp" if endpoint else "console")
    try:
        exporter = Exporter(named)
    except ValueError as error:
        raise ConfigError(f"OTEL_TRACES_EXPORTER={named}: must be otlp, console or none") from error
    protocol = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environment.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    if exporter is Exporter.OTLP and protocol not in (None, "", "grpc"):
        raise ConfigError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol}: traces go by grpc; leave it out, and name the collector's gRPC"
            " port (4317) in OTEL_EXPORTER_OTLP_ENDPOINT"
        )
    try:
        sampler = sampler_named(
            environment.get("OTEL_TRACES_SAMPLER", "").strip(), environment.get("OTEL_TRACES_SAMPLER_ARG", "").strip()
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error
    name = environment.get("OTEL_SERVICE_NAME", "").strip() or SERVICE_NAME
    return TraceSettings(exporter, endpoint or ENDPOINT, sampler, name, demanded=flag is True)
