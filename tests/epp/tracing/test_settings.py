"""The settings that the flag and the variables select."""

from __future__ import annotations

import pytest

from epp.errors import ConfigError
from epp.tracing.opening import described
from epp.tracing.sampler import Sampler
from epp.tracing.settings import Exporter, TraceSettings, trace_settings

OTLP = {"OTEL_TRACES_EXPORTER": "otlp"}
AT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"}


@pytest.mark.parametrize(
    ("flag", "environment", "expected"),
    [
        (None, {}, None),
        (False, OTLP | AT, None),
        (None, {"OTEL_TRACES_EXPORTER": "none"} | AT, None),
        (True, {"OTEL_SDK_DISABLED": "true"}, None),
        (None, {"OTEL_SERVICE_NAME": "router", "OTEL_TRACES_SAMPLER_ARG": "1"}, None),
        (True, {}, TraceSettings(Exporter.CONSOLE, demanded=True)),
        (None, {"OTEL_TRACES_EXPORTER": "console"}, TraceSettings(Exporter.CONSOLE)),
        (None, OTLP, TraceSettings(Exporter.OTLP)),
        (None, AT, TraceSettings(Exporter.OTLP, "http://collector:4317")),
        (
            True,
            AT | {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "traces:4317", "OTEL_SERVICE_NAME": "router"},
            TraceSettings(Exporter.OTLP, "traces:4317", service_name="router", demanded=True),
        ),
        (
            None,
            OTLP | {"OTEL_TRACES_SAMPLER": "always_on", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            TraceSettings(Exporter.OTLP, sampler=Sampler(1.0, by_parent=False)),
        ),
    ],
)
def test_traces_are_written_where_somebody_says_so(
    flag: bool | None, environment: dict[str, str], expected: TraceSettings | None
) -> None:
    assert trace_settings(flag, environment) == expected


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER=zipkin: must be otlp, console or none"),
        (
            OTLP | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
            "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf: ",
        ),
        (OTLP | {"OTEL_TRACES_SAMPLER_ARG": "7"}, "OTEL_TRACES_SAMPLER_ARG=7: must be a number from 0 to 1"),
    ],
)
def test_a_wrong_variable_is_one_sentence(environment: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        trace_settings(None, environment)


BY_PARENT = (
    "traces are written to the collector at http://c:4317, as service router: 0.1 of them, or as the caller decided"
)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://me:secret@c:4317", "OTEL_SERVICE_NAME": "router"},
            BY_PARENT,
        ),
        (
            {"OTEL_TRACES_EXPORTER": "console", "OTEL_TRACES_SAMPLER": "always_on"},
            "traces are written to standard output, as service tierwise: 1 of them",
        ),
    ],
)
def test_the_start_log_says_where_traces_go_and_how_many(environment: dict[str, str], said: str) -> None:
    settings = trace_settings(None, environment)
    assert settings is not None
    assert described(settings) == said
