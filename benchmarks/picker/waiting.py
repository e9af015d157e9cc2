"""What does a waiting request cost: in memory, and to enqueue, send on, cancel?

*queue* is what flow control keeps for a request (entry, position in its flow's order and in the order of age);
*stream* is everything kept for a request of 1 KB that waits in full duplex: exchange, headers, body and parsed prompt.
Each is the growth of a separate process. A request that need not wait is *passing*. Ten flows in three bands, 100
endpoints.
Run: ``python -m benchmarks.picker.waiting [--json]``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from multiprocessing import get_context

from benchmarks.index.prefix_memory import resident_bytes
from epp.decision import RequestHead, RequestLabels
from epp.errors import EppError
from epp.extproc.exchange import Exchange
from epp.extproc.options import ExchangeSettings
from epp.flowcontrol.admission import Arrival
from epp.flowcontrol.controller import FlowController
from epp.flowcontrol.counts import FlowCounts
from epp.flowcontrol.detectors import ConcurrencyDetector, ConcurrencyParameters
from epp.flowcontrol.fairness import RoundRobin
from epp.flowcontrol.gate import Gate
from epp.flowcontrol.saturation import Gauge
from epp.flowcontrol.settings import AdmissionPlan, BandSettings, FlowSettings
from epp.metrics.series import RequestTable
from epp.metrics.telemetry import Telemetry
from epp.parsers import DEFAULT_PARSERS, ByPath
from epp.pb.ext_proc_pb2 import ProcessingRequest
from epp.pb.processing_mode_pb2 import ProcessingMode
from epp.picking.director import Director
from epp.picking.profile import Profile
from epp.picking.request_steps import RequestSteps
from epp.pool.ledger import Ledger
from epp.pool.pool import Endpoint, Pool
from scorers.base import Request
from scorers.load.queue import QueueScorer
from scorers.pickers import MaxScorePicker

SIZES = (10_000, 100_000)
ENDPOINTS, FLOWS, PRIORITIES = 100, 10, (100, 0, -10)
OBJECTIVES = {str(priority): priority for priority in PRIORITIES}
BAND = BandSettings(max_requests=10**6, max_bytes=10**12, fairness=RoundRobin())


def pool_of_endpoints() -> Pool:
    pool = Pool()
    pool.replace([Endpoint(f"10.0.{n // 250}.{n % 250}:8000") for n in range(ENDPOINTS)])
    return pool


def flow_settings(places: int) -> FlowSettings:
    parameters = ConcurrencyParameters(max_concurrency=max(1, places // ENDPOINTS))
    return FlowSettings(detector=ConcurrencyDetector(parameters), ttl_s=None, default=BAND)


def nobody(error: EppError | None) -> None:
    """Ignore how a wait ended."""


def arrivals(size: int) -> list[Arrival]:
    """Return requests that share few objects, one per flow and band, so that their own memory does not count."""
    made = []
    for number in range(FLOWS * len(PRIORITIES)):
        flow, priority = f"flow-{number % FLOWS}", PRIORITIES[number % len(PRIORITIES)]
        request = Request("r", "m", "m", fairness_id=flow, priority=priority)
        made.append(Arrival(RequestHead({}), request, RequestLabels("m", "m", flow, priority), 1000))
    return [made[number % len(made)] for number in range(size)]


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def queue(size: int) -> dict[str, float]:
    """Return the bytes and microseconds of one of ``size`` queued requests."""
    pool, room = pool_of_endpoints(), flow_settings(ENDPOINTS)
    controller = FlowController(room, Gauge(room.detector, pool.candidates), FlowCounts(RequestTable()), time.monotonic)
    ledger = Ledger(pool)
    for candidate in pool.candidates():
        ledger.open(candidate, 0, 0.0)
    wanted = arrivals(size)
    held = [None] * size
    before = resident_bytes()

    def enqueue() -> None:
        for number, arrival in enumerate(wanted):
            held[number] = controller.admit(arrival, nobody)  # type: ignore[call-overload]

    enqueue_s = seconds(enqueue)
    grown = resident_bytes() - before

    def cancel() -> None:
        for entry in held[::2]:
            entry.cancel()  # type: ignore[attr-defined]

    cancel_s = seconds(cancel)
    roomy = flow_settings(10**9)
    controller.use(roomy)
    left = controller.size

    def dispatch() -> None:
        while controller.dispatch():
            pass

    dispatch_s = seconds(dispatch)

    def passing() -> None:
        for arrival in wanted:
            controller.admit(arrival, nobody)

    passing_s = seconds(passing)
    return {
        "queue_bytes": grown / size,
        "enqueue_us": enqueue_s / size * 1e6,
        "cancel_us": cancel_s / (size / 2) * 1e6,
        "dispatch_us": dispatch_s / left * 1e6,
        "passing_us": passing_s / size * 1e6,
    }


def stream(size: int) -> dict[str, float]:
    """Return the bytes of one of ``size`` whole requests that wait."""
    return asyncio.run(streams(size))


async def streams(size: int) -> dict[str, float]:
    pool, room, telemetry = pool_of_endpoints(), flow_settings(ENDPOINTS), Telemetry()
    gate = Gate(pool, telemetry.requests, time.monotonic)
    ledger = Ledger(pool)
    profile = Profile([], [], [(QueueScorer(), 1.0)], MaxScorePicker())
    admission = gate.use(AdmissionPlan(objectives=OBJECTIVES, flow=room))
    parser = ByPath([kind() for kind in DEFAULT_PARSERS])
    director = Director(RequestSteps(parser, profile, admission, OBJECTIVES), pool, ledger, telemetry)
    for candidate in pool.candidates():
        ledger.open(candidate, 0, 0.0)
    settings, numbers, waiting = ExchangeSettings(), count(), []
    before = resident_bytes()
    for number in range(size):
        exchange = Exchange(director, settings, nobody)
        for message in request(next(numbers), PRIORITIES[number % len(PRIORITIES)]):
            assert exchange.received(ProcessingRequest.FromString(message), 0.0) == []
        waiting.append(exchange)
    grown = resident_bytes() - before
    assert gate.room is not None
    assert gate.room.controller.size == size
    close_s = seconds(lambda: [exchange.closed(1.0) for exchange in waiting])
    return {"stream_bytes": grown / size, "closed_us": close_s / size * 1e6}


def request(number: int, priority: int) -> list[bytes]:
    head = ProcessingRequest()
    head.protocol_config.request_body_mode = ProcessingMode.FULL_DUPLEX_STREAMED
    headers = {
        ":method": "POST", ":path": "/v1/completions", ":authority": "router.example.net", "user-agent": "bench/1.0",
        "content-type": "application/json", "x-request-id": f"request-{number:08}",
        "x-llm-d-inference-objective": str(priority), "x-llm-d-inference-fairness-id": f"flow-{number % FLOWS}",
    }  # fmt: skip
    for name, value in headers.items():
        head.request_headers.headers.headers.add(key=name, raw_value=value.encode())
    body = json.dumps({"model": "m", "prompt": f"{number:08}" + "x" * 950}).encode()
    tail = ProcessingRequest(request_body={"body": body, "end_of_stream": True})
    return [head.SerializeToString(), tail.SerializeToString()]


def alone(measure: Callable[[int], dict[str, float]], size: int) -> dict[str, float]:
    """Return the result of ``measure`` in a process that does nothing else."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measure, size).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    as_json = parser.parse_args().json
    rows = {size: alone(queue, size) | alone(stream, size) for size in SIZES}
    if as_json:
        print(json.dumps(rows))
        return
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    print(f"a request that waits: bytes, and µs of one CPU; 1 KB bodies, {ENDPOINTS} endpoints; {machine}")
    print(f"{'waiting':>9} {'queue B':>8} {'stream B':>9} {'enqueue':>8} {'send on':>8} {'cancel':>7} {'passing':>8}")
    for size, row in rows.items():
        print(
            f"{size:9,} {row['queue_bytes']:8.0f} {row['stream_bytes']:9.0f} {row['enqueue_us']:8.2f}"
            f" {row['dispatch_us']:8.2f} {row['cancel_us']:7.2f} {row['passing_us']:8.2f}"
        )


if __name__ == "__main__":
    main()
