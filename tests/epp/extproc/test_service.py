"""The ext-proc service over a call that records what is sent."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from typing_extensions import override

from epp.decision import Cause, RequestHead
from epp.errors import Evicted
from epp.extproc.options import ExchangeSettings
from epp.extproc.service import PROCESS, methods
from epp.flowcontrol.admission import Arrival
from epp.pb.ext_proc_pb2 import ProcessingRequest
from epp.picking.director import Director
from epp.wire.service import Handler, Status
from tests.epp.doubles import (
    BUFFERED,
    NONE,
    Gate,
    World,
    completion,
    kinds,
    read,
    request_body,
    request_headers,
    response_body,
    response_headers,
)


@dataclass
class RecordedCall:
    """A call that records its messages and its end."""

    metadata: Sequence[tuple[str, str]] = ()
    peer: str = "127.0.0.1:1"
    sent: list[bytes] = field(default_factory=list)
    status: Status | None = None
    message: str = ""

    def send(self, message: bytes) -> None:
        assert self.status is None
        self.sent.append(message)

    def finish(self, status: Status = Status.OK, message: str = "") -> None:
        assert self.status is None
        self.status, self.message = status, message


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def call() -> RecordedCall:
    return RecordedCall()


def stream(world: World, call: RecordedCall) -> Handler:
    return methods(world.director)[PROCESS](call)


def feed(handler: Handler, *messages: ProcessingRequest) -> None:
    for message in messages:
        handler.received(message.SerializeToString())


def test_a_whole_exchange_from_bytes_to_bytes(world: World, call: RecordedCall) -> None:
    handler = stream(world, call)
    feed(handler, request_headers(), request_body(completion()), response_headers(), response_body(b"{}"))
    assert kinds(call.sent) == ["request_headers", "request_body", "response_headers", "response_body"]
    assert call.status is None
    handler.half_closed()
    assert call.status is Status.OK
    assert world.ledger.closed == [(1, Cause.COMPLETED)]
    assert (world.telemetry.request_phases, world.telemetry.response_phases) == (1, 1)


def test_a_refusal_is_sent_and_ends_the_stream_cleanly(world: World, call: RecordedCall) -> None:
    feed(stream(world, call), request_headers(), request_body(b"{"))
    assert read(call.sent)[0].immediate_response.status.code == 400
    assert call.status is Status.OK
    assert world.telemetry.refusals == ["BadRequest"]


def test_bytes_that_are_no_message_are_refused(world: World, call: RecordedCall) -> None:
    handler = stream(world, call)
    feed(handler, request_headers(), request_body(completion()))
    handler.received(b"\xff\xff")
    assert call.status is Status.INVALID_ARGUMENT
    assert world.ledger.closed == [(1, Cause.DISCONNECTED)]


def test_a_violation_is_refused_by_name_and_leaks_nothing(world: World, call: RecordedCall) -> None:
    feed(stream(world, call), request_headers(), request_body(completion()), request_headers())
    assert call.status is Status.INVALID_ARGUMENT
    assert "request headers after the start" in call.message
    assert not world.ledger


def test_a_cancelled_stream_frees_its_endpoint_and_is_not_answered(world: World, call: RecordedCall) -> None:
    handler = stream(world, call)
    feed(handler, request_headers(), request_body(completion()))
    handler.cancelled()
    assert call.status is None
    assert world.ledger.closed == [(1, Cause.DISCONNECTED)]


def test_a_request_that_is_to_end_for_another_after_its_stream_closed_is_counted_once(call: RecordedCall) -> None:
    gate = Gate()
    gate.open = True
    world = World(admission=gate)
    handler = methods(world.director, ExchangeSettings(access_log=True))[PROCESS](call)
    feed(handler, request_headers(modes=(BUFFERED, NONE)), request_body(completion()))
    ((pick_id, end),) = gate.flights.items()
    handler.half_closed()
    end(Evicted("for another"))
    handler.cancelled()
    assert (world.telemetry.request_phases, call.status) == (1, Status.OK)
    assert gate.flights.keys() == {pick_id}, "the access log is to say how it ended"


def test_a_fault_of_the_picker_is_a_500_of_one_request(
    world: World, call: RecordedCall, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Director):
        @override
        def read(self, head: RequestHead, body: bytes) -> Arrival:
            raise ZeroDivisionError("a fault")

    world.director.__class__ = Broken
    with caplog.at_level(logging.ERROR):
        feed(stream(world, call), request_headers(), request_body(completion()))
    (answer,) = read(call.sent)
    assert answer.immediate_response.status.code == 500
    assert b"ZeroDivisionError" not in answer.immediate_response.body
    assert "a fault" in caplog.text
    assert call.status is Status.OK
    assert world.telemetry.refusals == ["Internal"]
