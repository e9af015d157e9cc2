"""From the queue to a real collector, and the cost of a bad one."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import grpc
import pytest

from epp.decision import Cause, Outcome
from epp.errors import ConfigError
from epp.tracing import opening
from epp.tracing.context import TraceContext
from epp.tracing.exporters import open_sink
from epp.tracing.queue import BATCH, MAX_QUEUED, TraceQueue
from epp.tracing.sampler import Sampler
from epp.tracing.settings import Exporter, TraceSettings
from epp.tracing.trace import Trace
from epp.tracing.tracer import Tracer
from tests.epp.tracing.collector import PATIENCE_S, Collector, collector

ROOT = Path(__file__).parents[3]
LONG_S = 1000.0


@pytest.fixture(autouse=True)
def library_logs_as_before() -> Iterator[None]:
    level = logging.getLogger("opentelemetry").level
    yield
    logging.getLogger("opentelemetry").setLevel(level)


def trace(number: int = 1) -> Trace:
    made = Trace(TraceContext(number, number, sampled=True), None, 1.0, 1.5)
    made.outcome = Outcome(Cause.COMPLETED, 200)
    return made


def at(address: str) -> TraceSettings:
    return TraceSettings(Exporter.OTLP, address, Sampler(1.0), "router-of-the-test")


class Sink:
    """An exporter that takes, refuses, breaks or holds spans, as the test selects."""

    def __init__(self, answer: bool | None = True) -> None:
        self.answer = answer
        self.batches: list[int] = []
        self.let = threading.Event()
        self.let.set()
        self.entered = threading.Event()
        self.closed = threading.Event()

    def write(self, traces: Sequence[Trace]) -> bool:
        self.entered.set()
        self.let.wait(PATIENCE_S)
        if self.answer is None:
            raise ZeroDivisionError
        self.batches.append(len(traces))
        return self.answer

    def close(self) -> None:
        self.closed.set()


def test_traces_are_written_in_order_and_in_batches() -> None:
    sink = Sink()
    sink.let.clear()
    queue = TraceQueue(sink, every_s=LONG_S)
    for number in range(1, 3 * BATCH + 1):
        queue.offer(trace(number))
    sink.let.set()
    queue.stop(PATIENCE_S)
    assert sum(sink.batches) == 3 * BATCH == queue.written
    assert max(sink.batches) <= BATCH
    assert sink.closed.is_set()


@pytest.mark.parametrize("answer", [False, None])
def test_a_sink_that_refuses_or_breaks_is_counted_and_the_queue_goes_on(answer: bool | None) -> None:
    sink = Sink(answer)
    queue = TraceQueue(sink, every_s=0.001)
    queue.offer(trace())
    assert sink.entered.wait(PATIENCE_S)
    sink.answer = True
    sink.let.clear()
    sink.entered.clear()
    queue.offer(trace())
    assert sink.entered.wait(PATIENCE_S)
    sink.let.set()
    queue.stop(PATIENCE_S)
    assert queue.written + queue.failed == 2


def test_a_sink_that_hangs_costs_traces_and_nothing_else() -> None:
    sink = Sink()
    sink.let.clear()
    queue = TraceQueue(sink, every_s=0.001)
    queue.offer(trace())
    assert sink.entered.wait(PATIENCE_S)
    for number in range(MAX_QUEUED + 10):
        queue.offer(trace(number))
    assert queue.dropped == 10
    queue.stop(timeout_s=0.05)
    assert sink.closed.is_set()
    assert queue.dropped == MAX_QUEUED + 10
    queue.offer(trace())
    assert queue.dropped == MAX_QUEUED + 11
    sink.let.set()


def test_spans_arrive_at_a_collector() -> None:
    with collector() as there:
        queue = TraceQueue(open_sink(at(f"http://{there.address}"), "1.2.3"), every_s=0.01)
        queue.offer(trace(7))
        (root,) = there.named("gateway.request")
        queue.stop(PATIENCE_S)
    assert there.services == {"router-of-the-test"}
    assert root.trace_id.hex() == f"{7:032x}"
    assert root.kind == root.SPAN_KIND_SERVER
    (inner,) = there.named("gateway.request_orchestration")
    assert inner.parent_span_id == root.span_id
    assert queue.written == 1


def test_an_endpoint_without_a_scheme_is_plaintext() -> None:
    with collector() as there:
        queue = TraceQueue(open_sink(at(there.address), "1"), every_s=0.01)
        queue.offer(trace())
        assert there.named("gateway.request")
        queue.stop(PATIENCE_S)


def hung(there: Collector) -> None:
    there.hold.clear()


def refusing(there: Collector) -> None:
    there.refuse = grpc.StatusCode.UNAVAILABLE  # to be tried again, with longer and longer pauses


@pytest.mark.parametrize("bad", [hung, refusing])
def test_a_bad_collector_does_not_hold_up_the_end(bad: object) -> None:
    with collector() as there:
        bad(there)  # type: ignore[operator]
        queue = TraceQueue(open_sink(at(there.address), "1"), every_s=0.01)
        queue.offer(trace())
        stopping = threading.Thread(target=queue.stop, args=(0.1,))
        stopping.start()
        stopping.join(PATIENCE_S)
        assert not stopping.is_alive()
        assert queue.written == 0


def test_traces_on_standard_output_are_json(capfd: pytest.CaptureFixture[str]) -> None:
    queue = TraceQueue(open_sink(TraceSettings(), "1"), every_s=0.01)
    queue.offer(trace())
    queue.stop(PATIENCE_S)
    written = capfd.readouterr().out
    first, _ = json.JSONDecoder().raw_decode(written)
    assert first["name"] == "gateway.request_orchestration"
    assert '"name": "gateway.request"' in written


def test_every_metric_of_traces_is_on_their_page() -> None:
    queue = TraceQueue(Sink(), every_s=LONG_S)
    exposed = {
        (f"{r.name}_total", "counter") if r.counter else (r.name, "gauge")
        for r in Tracer(Sampler(1.0), queue).readings()
    }
    queue.stop(PATIENCE_S)
    page = (ROOT / "docs" / "tracing.md").read_text()
    assert set(re.findall(r"^\| `(tierwise_\w+)` \| (\w+) \|", page, re.MULTILINE)) == exposed


def without_the_library(code: str) -> str:
    hidden = "import sys; sys.modules['opentelemetry'] = None\n"
    run = subprocess.run([sys.executable, "-c", hidden + code], capture_output=True, text=True, check=True, cwd=ROOT)
    return run.stdout.strip()


def test_asked_for_by_flag_a_missing_library_is_a_sentence_that_says_what_to_install() -> None:
    code = (
        "from epp.errors import ConfigError\n"
        "from epp.tracing.opening import open_tracer\n"
        "from epp.tracing.settings import TraceSettings\n"
        "try: open_tracer(TraceSettings(demanded=True))\n"
        "except ConfigError as error: print(error)\n"
        "print(open_tracer(TraceSettings()))"
    )
    assert without_the_library(code).splitlines() == [str(ConfigError(opening.MISSING)), "None"]


def test_a_picker_without_traces_never_imports_the_library() -> None:
    code = (
        "from epp.server.app import App\n"
        "from epp.server.settings import Settings\n"
        "from epp.config.wiring.build import build\n"
        "App(build(None), Settings())\n"
        "print('fine')"
    )
    assert without_the_library(code) == "fine"
