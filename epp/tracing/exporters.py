"""Where spans are sent: to a collector by OTLP over gRPC, or to standard output."""

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
"""The timeout of one batch, including all retries. A guess: half of OpenTelemetry's; a slow batch delays other traces
only.
"""


class ExporterSink:
    """A sink (``epp.tracing.queue.Sink``) that uses one of OpenTelemetry's exporters."""

    def __init__(self, exporter: SpanExporter, writer: SpanWriter) -> None:
        self._exporter = exporter
        self._writer = writer

    def write(self, traces: Sequence[Trace]) -> bool:
        """Export the spans of ``traces``; return whether the exporter took them."""
        spans = [span for trace in traces for span in self._writer.spans(trace)]
        return self._exporter.export(spans) is SpanExportResult.SUCCESS

    def close(self) -> None:
        """Abort the export that is under way."""
        self._exporter.shutdown()


def open_sink(settings: TraceSettings, version: str) -> ExporterSink:
    """Return the sink for ``settings``, not connected yet.

    The attributes in ``OTEL_RESOURCE_ATTRIBUTES`` are added to every span.
    """
    # We log a failure once, and count how often it occurs; the library would log every attempt.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    resource = Resource.create({SERVICE_NAME: settings.service_name, SERVICE_VERSION: version})
    return ExporterSink(open_exporter(settings), SpanWriter(resource))


def open_exporter(settings: TraceSettings) -> SpanExporter:
    """Return the library's exporter. An endpoint without a scheme means plaintext, as in the Go picker."""
    if settings.exporter is Exporter.CONSOLE:
        return ConsoleSpanExporter(out=sys.stdout)
    plain = True if "://" not in settings.endpoint else None
    return OTLPSpanExporter(endpoint=settings.endpoint, insecure=plain, timeout=TIMEOUT_S)
