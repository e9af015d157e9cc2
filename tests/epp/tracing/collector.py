"""A collector: a real OTLP service on loopback that keeps its spans, or misbehaves on request."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

PATIENCE_S = 20.0


class Collector(TraceServiceServicer):
    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.services: set[str] = set()
        self.address = ""
        self.hold = threading.Event()
        """It answers while this is set; otherwise it takes requests and never answers."""
        self.hold.set()
        self.refuse = grpc.StatusCode.OK
        self.taken = threading.Condition()

    def Export(  # noqa: N802
        self, request: ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> ExportTraceServiceResponse:
        if self.refuse is not grpc.StatusCode.OK:
            context.abort(self.refuse, "no")
        self.hold.wait(PATIENCE_S)
        with self.taken:
            for resource in request.resource_spans:
                self.services |= {a.value.string_value for a in resource.resource.attributes if a.key == "service.name"}
                for scope in resource.scope_spans:
                    self.spans.extend(scope.spans)
            self.taken.notify_all()
        return ExportTraceServiceResponse()

    def named(self, name: str, count: int = 1) -> list[Span]:
        """Return the spans of that name once there are ``count``."""

        def found() -> list[Span]:
            return [span for span in self.spans if span.name == name]

        with self.taken:
            assert self.taken.wait_for(lambda: len(found()) >= count, PATIENCE_S), [s.name for s in self.spans]
            return found()


@contextmanager
def collector() -> Iterator[Collector]:
    servicer = Collector()
    server = grpc.server(futures.ThreadPoolExecutor(2))
    add_TraceServiceServicer_to_server(servicer, server)
    servicer.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield servicer
    finally:
        servicer.hold.set()
        server.stop(0).wait()
