"""Where spans go: a collector by OTLP over gRPC, or standard output."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SpanExporter, SpanExportResult

from epp.tracing.settings import Exporter, TraceSettings
from epp.tracing.spans import SpanWriter
from epp.tracing.trace import Trace

TIMEOUT_S = 5.0
"""For one batch, with all attempts. A guess: half of OpenTelemetry's, which holds up nobody but other traces."""


class ExporterSink:
    """``epp.tracing.queue.Sink`` on an exporter of OpenTelemetry's."""

    def __init__(self, exporter: SpanExporter, writer: SpanWriter) -> None:
        self._exporter = exporter
        self._writer = writer

    def write(self, traces: Sequence[Trace]) -> bool:
        """Whether the exporter took their spans."""
        spans = [span for trace in traces for span in self._writer.spans(trace)]
        return self._exporter.export(spans) is SpanExportResult.SUCCESS

    def close(self) -> None:
        """Abort what is under way."""
        self._exporter.shutdown()


def open_sink(settings: TraceSettings, version: str) -> ExporterSink:
    """Where ``settings`` say. Nothing is connected yet. Attributes in ``OTEL_RESOURCE_ATTRIBUTES`` are added."""
    # One line of ours says it once, and a counter how often; the library's say it for every attempt.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    resource = Resource.create({SERVICE_NAME: settings.service_name, SERVICE_VERSION: version})
    return ExporterSink(open_exporter(settings), SpanWriter(resource))


def open_exporter(settings: TraceSettings) -> SpanExporter:
    """The library's exporter. An endpoint without a scheme is plaintext, as in the Go picker."""
    if settings.exporter is Exporter.CONSOLE:
        return ConsoleSpanExporter(out=sys.stdout)
    plain = True if "://" not in settings.endpoint else None
    return OTLPSpanExporter(endpoint=settings.endpoint, insecure=plain, timeout=TIMEOUT_S)
