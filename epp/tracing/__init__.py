"""Traces: the decisions made for some requests, with their durations, sent to a collector.

    head ─► sampler ─► Trace, filled by the director ─► queue ─► a thread: spans ─► exporter

The request path samples before anything is built, and then records references and times. Spans are built in the thread,
as is everything else of ``opentelemetry``, which is imported in ``epp.tracing.spans`` and ``epp.tracing.exporters``
only. Rejected: the library's tracer on the request path, at about 30 µs per span and ten spans per request.
"""
