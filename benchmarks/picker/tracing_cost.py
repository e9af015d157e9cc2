"""What do traces cost a request: when they are off, when the request is not sampled, and when it is?

One exchange in process, as behind the standalone proxy: headers, a body of 1 KB, a decision over four endpoints with
the default profile, the end by access log. No socket, no parsing of messages. *cpu* counts all threads, and so
includes spans and their export to a collector that accepts everything; *request* is the event loop's time alone.

Run: ``python -m benchmarks.picker.tracing_cost [--json]``.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from epp.config.wiring.build import build
from epp.decision import Cause, Outcome
from epp.extproc.exchange import Exchange
from epp.extproc.options import ExchangeSettings
from epp.metrics.telemetry import Telemetry
from epp.pb.ext_proc_pb2 import ProcessingRequest
from epp.pb.processing_mode_pb2 import ProcessingMode
from epp.picking.director import Director
from epp.picking.request_steps import RequestSteps
from epp.pool.ledger import Ledger
from epp.pool.pool import Endpoint, EngineMetrics, Pool
from epp.tracing.context import TraceContext
from epp.tracing.exporters import ExporterSink
from epp.tracing.queue import TraceQueue
from epp.tracing.sampler import Sampler
from epp.tracing.spans import SpanWriter
from epp.tracing.tracer import Tracer

REQUESTS, ROUNDS = 1000, 15
BODY = json.dumps({"model": "m", "prompt": "Explain the following in detail. " * 30}).encode()


class Taken(SpanExporter):
    """An exporter whose collector accepts everything at once."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Report success without sending anything."""
        del spans
        return SpanExportResult.SUCCESS


def request(traceparent: str = "") -> tuple[ProcessingRequest, ProcessingRequest]:
    """Return the two messages that the proxy sends for a request."""
    headers = ProcessingRequest()
    named = {":method": "POST", ":path": "/v1/completions", "content-type": "application/json"}
    if traceparent:
        named["traceparent"] = traceparent
    for name, value in named.items():
        headers.request_headers.headers.headers.add(key=name, raw_value=value.encode())
    headers.protocol_config.request_body_mode = ProcessingMode.BUFFERED
    return headers, ProcessingRequest(request_body={"body": BODY, "end_of_stream": True})


class Picker:
    """A director, and exchanges that use it."""

    def __init__(self, sampler: Sampler | None, traceparent: str = "") -> None:
        plan = build(None)
        pool = Pool("bench")
        if plan.prefix_cache is not None:
            pool.listeners.append(plan.prefix_cache)
        pool.replace([Endpoint(f"10.0.0.{i}:8000") for i in range(1, 5)])
        for candidate in pool.candidates():
            pool.observe(candidate.slot, EngineMetrics(waiting=candidate.slot), 0)
        self.queue: TraceQueue | None = None
        tracer = None
        if sampler is not None:
            self.queue = TraceQueue(ExporterSink(Taken(), SpanWriter(Resource({}))), every_s=0.05)
            tracer = Tracer(sampler, self.queue)
        self.director = Director(
            RequestSteps(plan.parser, plan.profile), pool, Ledger(pool), Telemetry(), tracer=tracer
        )
        self.messages = request(traceparent)
        self.settings = ExchangeSettings(access_log=True)
        self.next_id = 1

    def serve(self) -> None:
        """One request from its headers to its end."""
        exchange = Exchange(self.director, self.settings)
        now = time.monotonic()
        for message in self.messages:
            exchange.received(message, now)
        exchange.closed(now)
        self.director.picks.ended(self.next_id, Outcome(Cause.COMPLETED, 200, duration_s=0.1))
        self.next_id += 1


@dataclass
class Row:
    """One row. Units: microseconds per request, medians of the rounds."""

    case: str
    request_us: float
    cpu_us: float


def rounds(picker: Picker) -> Iterator[tuple[float, float]]:
    """Return the CPU time of this thread, and of all threads, per request."""
    while True:
        cpu, own = time.process_time(), time.thread_time()
        for _ in range(REQUESTS):
            picker.serve()
        own = time.thread_time() - own
        while picker.queue is not None and picker.queue.waiting:
            time.sleep(0.01)
        yield own / REQUESTS * 1e6, (time.process_time() - cpu) / REQUESTS * 1e6


def cases() -> dict[str, Callable[[], Picker]]:
    """Yield the cases that are compared."""
    caller = TraceContext(1, 1, sampled=False).header
    return {
        "off": lambda: Picker(None),
        "on, caller does not sample": lambda: Picker(Sampler(1.0), caller),
        "on, not sampled": lambda: Picker(Sampler(0.0)),
        "on, one in ten": lambda: Picker(Sampler(0.1)),
        "on, all": lambda: Picker(Sampler(1.0)),
    }


def main() -> None:
    """Print a table, or JSON."""
    running = {case: rounds(make()) for case, make in cases().items()}
    found: dict[str, list[tuple[float, float]]] = {case: [] for case in running}
    for _ in range(ROUNDS):  # in turns, so that ratios hold when the machine's speed drifts
        for case, each in running.items():
            found[case].append(next(each))
    rows = [
        Row(case, *(round(statistics.median(column), 1) for column in zip(*times, strict=True)))
        for case, times in found.items()
    ]
    if "--json" in sys.argv:
        print(json.dumps([asdict(row) for row in rows]))
        return
    print(f"{'case':32}{'request µs':>12}{'cpu µs':>10}")
    for row in rows:
        print(f"{row.case:32}{row.request_us:12.1f}{row.cpu_us:10.1f}")


if __name__ == "__main__":
    main()
