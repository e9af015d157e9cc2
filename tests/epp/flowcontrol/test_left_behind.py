"""A request that has waited, however its wait ended, leaves nothing behind for the garbage collector to find."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from epp.extproc.service import PROCESS, methods
from epp.flowcontrol.detectors import ConcurrencyDetector, ConcurrencyParameters
from epp.flowcontrol.gate import Gate
from epp.flowcontrol.settings import AdmissionPlan, FlowSettings
from epp.metrics.series import RequestTable
from epp.parsers import OpenAIParser
from epp.pb.ext_proc_pb2 import ProcessingRequest
from epp.picking.request_steps import RequestSteps
from epp.wire.service import Handler
from tests.epp.doubles import World, completion, request_body, request_headers, response_body, response_headers
from tests.epp.extproc.test_service import RecordedCall
from tests.epp.flowcontrol.test_room import turns

ONE = ConcurrencyDetector(ConcurrencyParameters(max_concurrency=1))
PLAN = AdmissionPlan(objectives={"batch": -1}, flow=FlowSettings(detector=ONE, enable_eviction=True, ttl_s=5.0))
REQUEST = (request_headers(x_llm_d_inference_objective="batch"), request_body(completion()))
RESPONSE = (response_headers(), response_body(b"{}"))


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def send(handler: Handler, *messages: ProcessingRequest) -> None:
    for message in messages:
        handler.received(message.SerializeToString())


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("end", ["went on", "expired", "cancelled", "half closed", "shut down", "evicted", "passed"])
def test_a_stream_is_gone_when_it_has_ended(end: str) -> None:
    async def scene() -> None:
        world, now = World(endpoints=1), [0.0]
        gate = Gate(world.pool, RequestTable(), lambda: now[0])
        world.director.use(RequestSteps(OpenAIParser(), world.director._profile, gate.use(PLAN), PLAN.objectives))
        service = methods(world.director)[PROCESS]
        room = gate.room
        assert room is not None
        first = service(RecordedCall())
        if end not in ("evicted", "passed"):
            send(first, *REQUEST)
        handler: Handler | None = service(RecordedCall())
        trace = weakref.ref(handler)  # type: ignore[arg-type]
        send(handler, *REQUEST)  # type: ignore[arg-type]
        if end == "passed":
            send(handler, *RESPONSE)  # type: ignore[arg-type]
            handler.half_closed()  # type: ignore[union-attr]
        elif end == "evicted":
            assert len(room.in_flight) == 1
            room.in_flight.end(below=0, most=1)
        elif end == "went on":
            send(first, *RESPONSE)
            await turns()
            send(handler, *RESPONSE)  # type: ignore[arg-type]
            handler.half_closed()  # type: ignore[union-attr]
        elif end == "expired":
            now[0] = 5.0
            room.controller.expire()
        elif end == "cancelled":
            handler.cancelled()  # type: ignore[union-attr]
        elif end == "half closed":
            handler.half_closed()  # type: ignore[union-attr]
        else:
            gate.close()
        handler = None
        await turns()
        assert trace() is None
        assert room.controller.size == 0
        assert len(room.in_flight) == len(world.ledger)
        first.cancelled()
        assert (len(room.in_flight), len(world.ledger)) == (0, 0)

    asyncio.run(scene())
