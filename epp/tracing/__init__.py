"""Traces: what was decided for some requests, and how long it took, for a collector.

    head ─► sampler ─► Trace, told by the director ─► queue ─► a thread: spans ─► exporter

The request path draws the lot before anything is made, and then notes references and times; spans are objects of the
thread, as is everything of ``opentelemetry``, which is imported in ``epp.tracing.spans`` and ``epp.tracing.exporters``
only. Rejected: the library's tracer on the request path, at some 30 µs a span and ten spans a request.
"""
