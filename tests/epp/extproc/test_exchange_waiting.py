"""An exchange whose request has to wait before it is placed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epp.decision import Cause
from epp.errors import EppError, Evicted, NoEndpoints, Saturated
from epp.extproc.exchange import Exchange, ProtocolViolation
from epp.extproc.options import ExchangeSettings
from epp.extproc.service import PROCESS, methods
from epp.pb.ext_proc_pb2 import ProcessingRequest
from epp.wire.service import Handler, Status
from tests.epp.doubles import (
    BUFFERED,
    FULL_DUPLEX,
    NONE,
    Gate,
    World,
    completion,
    destination_of,
    forwarded,
    kinds,
    read,
    request_body,
    request_headers,
    request_trailers,
    response_body,
    response_headers,
)
from tests.epp.extproc.test_exchange_properties import messages
from tests.epp.extproc.test_service import RecordedCall


class Stream:
    """One exchange with the answers it has sent, resumed as its shell would resume it."""

    def __init__(self, world: World, *, access_log: bool = False) -> None:
        self.exchange = Exchange(world.director, ExchangeSettings(access_log=access_log), self.resume)
        self.answers: list[bytes] = []
        self.resumed = 0

    def resume(self, error: EppError | None) -> None:
        self.resumed += 1
        self.answers += self.exchange.resumed(error, 1.0)

    def send(self, *sent: ProcessingRequest) -> None:
        for message in sent:
            self.answers += self.exchange.received(message, 0.0)


def waiting(gate: Gate, *sent: ProcessingRequest) -> tuple[World, Stream]:
    world = World(admission=gate)
    stream = Stream(world)
    stream.send(*sent)
    return world, stream


def test_a_request_that_may_go_on_is_answered_in_the_same_call() -> None:
    gate = Gate()
    gate.open = True
    _, stream = waiting(gate, request_headers(), request_body(completion()))
    assert kinds(stream.answers) == ["request_headers", "request_body"]


def test_a_request_that_waits_is_answered_when_it_is_resumed() -> None:
    gate = Gate()
    world, stream = waiting(gate, request_headers(), request_body(b"", end_of_stream=False), request_body(completion()))
    assert stream.answers == []
    assert world.ledger.picks == []
    gate.settle()
    answers = read(stream.answers)
    assert destination_of(answers[0]) == "10.0.0.1:8000"
    assert forwarded(answers) == [(completion(), True)]
    assert len(world.ledger) == 1


def test_a_buffered_body_is_not_kept_while_it_waits() -> None:
    gate = Gate()
    _, stream = waiting(gate, request_headers(modes=(BUFFERED, NONE)), request_body(completion()))
    *_, patience = read(stream.answers)
    assert kinds(stream.answers) == ["request_headers", None]
    assert patience.override_message_timeout.ToMilliseconds() == 61_000
    waits = stream.exchange._waiting
    assert waits is not None
    assert waits.answer.forward is None
    assert stream.exchange._request.take_body() is None
    gate.settle()
    assert kinds(stream.answers) == ["request_headers", None, "request_body"]


@pytest.mark.parametrize("modes", [(FULL_DUPLEX, FULL_DUPLEX), (BUFFERED, NONE)])
def test_trailers_are_answered_after_the_decision(modes: tuple[int, int]) -> None:
    gate = Gate()
    body = request_body(completion(), end_of_stream=False)
    _, stream = waiting(gate, request_headers(modes=modes), body, request_trailers())
    before = len(stream.answers)
    gate.settle()
    decision = "request_headers" if modes[0] == FULL_DUPLEX else "request_body"
    after = kinds(stream.answers[before:])
    assert (after[0], after[-1]) == (decision, "request_trailers")


def test_a_request_without_a_body_never_waits() -> None:
    gate = Gate()
    _, stream = waiting(gate, request_headers(end_of_stream=True))
    assert (kinds(stream.answers), gate.waiting) == (["request_headers"], [])


def test_a_refusal_after_waiting_is_an_immediate_answer_and_reported() -> None:
    gate = Gate()
    world, stream = waiting(gate, request_headers(), request_body(completion()))
    gate.settle(Saturated("waited too long"))
    (answer,) = read(stream.answers)
    assert answer.immediate_response.status.code == 429
    assert stream.exchange.over
    assert world.telemetry.refusals == ["ResourceExhausted"]
    assert world.ledger.picks == []


def test_an_endpoint_that_is_gone_when_the_wait_ends_is_a_refusal() -> None:
    gate = Gate()
    world, stream = waiting(gate, request_headers(), request_body(completion()))
    world.pool.replace([])
    gate.settle()
    assert read(stream.answers)[0].immediate_response.status.code == NoEndpoints.http_status
    assert world.telemetry.refusals == ["ServiceUnavailable"]


@pytest.mark.parametrize("what", ["closed", "answered by the proxy", "violation"])
def test_a_wait_that_nobody_needs_is_cancelled_at_once(what: str) -> None:
    gate = Gate()
    world, stream = waiting(gate, request_headers(), request_body(completion()))
    if what == "answered by the proxy":
        stream.send(response_headers(504))
    elif what == "violation":
        with pytest.raises(ProtocolViolation):
            stream.send(request_headers())
    stream.exchange.closed(2.0)
    assert (gate.waiting, gate.cancelled) == ([], 1)
    assert world.telemetry.refusals == ["ServiceUnavailable"]
    assert stream.exchange.resumed(None, 3.0) == []
    assert world.ledger.picks == []


@settings(deadline=None)
@given(
    st.lists(st.one_of(messages, st.sampled_from(["admit", "refuse", "twice", "evict"])), max_size=14),
    st.booleans(),
    st.sampled_from([(FULL_DUPLEX, FULL_DUPLEX), (BUFFERED, NONE), None]),
)
def test_in_any_order_a_wait_ends_once_and_leaves_nothing(
    steps: list[ProcessingRequest | str], access_log: bool, modes: tuple[int, int] | None
) -> None:
    gate = Gate()
    world = World(admission=gate)
    stream = Stream(world, access_log=access_log)
    if modes is not None:  # most orders are no request at all; these are
        stream.send(request_headers(modes=modes), request_body(completion()))
    waited = len(gate.waiting)
    for step in steps:
        before = len(gate.waiting)
        if not isinstance(step, str):
            try:
                stream.send(step)
            except ProtocolViolation:
                break
        elif step == "evict":
            for resume in list(gate.flights.values()):
                resume(Evicted("for another"))
        elif gate.waiting:
            held = gate.waiting[0]
            gate.settle(Saturated("full") if step == "refuse" else None)
            if step == "twice":
                held.resume(None)
        waited += max(0, len(gate.waiting) - before)
        assert len(gate.waiting) + len(world.ledger.picks) <= 1
        if stream.exchange.over:
            break
    stream.exchange.closed(9.0)
    stream.exchange.closed(9.0)
    assert waited <= 1
    assert gate.waiting == []
    picks, closed = len(world.ledger.picks), len(world.ledger.closed)
    assert picks <= 1
    assert closed == picks - len(world.ledger)
    assert access_log or not world.ledger


# In flight.


def placed(*, streaming: bool = False, response_mode: int = FULL_DUPLEX) -> tuple[World, Stream, Gate]:
    gate = Gate()
    gate.open = True
    world = World(admission=gate)
    stream = Stream(world, access_log=response_mode == NONE)
    request_mode = BUFFERED if response_mode == NONE else FULL_DUPLEX
    stream.send(request_headers(modes=(request_mode, response_mode)), request_body(completion(stream=streaming)))
    stream.answers.clear()
    return world, stream, gate


@pytest.mark.parametrize("response_mode", [FULL_DUPLEX, NONE])
def test_a_request_in_flight_can_be_ended_before_its_answer_begins(response_mode: int) -> None:
    world, stream, gate = placed(response_mode=response_mode)
    gate.flights[1](Evicted("request evicted by flow control"))
    (answer,) = read(stream.answers)
    assert answer.immediate_response.status.code == 429
    assert answer.immediate_response.body == b"request evicted by flow control"
    assert stream.exchange.over
    assert world.ledger.closed == [(1, Cause.EVICTED)]
    assert gate.flights == {}
    stream.exchange.closed(9.0)
    assert len(world.telemetry.outcomes) == 1


def test_a_request_whose_answer_has_begun_is_not_ended() -> None:
    world, stream, gate = placed()
    stream.send(response_headers())
    stream.answers.clear()
    gate.flights[1](Evicted("request evicted by flow control"))
    assert (stream.answers, stream.exchange.over, len(world.ledger)) == ([], False, 1)


def test_a_streamed_answer_that_is_not_seen_cannot_be_ended() -> None:
    assert placed(streaming=True, response_mode=NONE)[2].flights == {}
    assert placed(streaming=True)[2].flights != {}


# The shell.


def started(gate: Gate) -> tuple[World, RecordedCall, Handler]:
    world, call = World(admission=gate), RecordedCall()
    handler = methods(world.director)[PROCESS](call)
    for message in (request_headers(), request_body(completion())):
        handler.received(message.SerializeToString())
    return world, call, handler


def test_the_answers_go_out_when_the_wait_ends() -> None:
    gate = Gate()
    world, call, handler = started(gate)
    assert call.sent == []
    gate.settle()
    assert kinds(call.sent) == ["request_headers", "request_body"]
    for message in (response_headers(), response_body(b"{}")):
        handler.received(message.SerializeToString())
    handler.half_closed()
    assert world.ledger.closed == [(1, Cause.COMPLETED)]


def test_a_refused_wait_ends_the_stream_cleanly() -> None:
    gate = Gate()
    _, call, _ = started(gate)
    gate.settle(Saturated("waited too long"))
    assert read(call.sent)[0].immediate_response.status.code == 429
    assert call.status is Status.OK


@pytest.mark.parametrize("end", ["cancelled", "half_closed"])
def test_a_stream_that_ends_while_it_waits_is_forgotten_at_once(end: str) -> None:
    gate = Gate()
    _, call, handler = started(gate)
    getattr(handler, end)()
    assert (gate.waiting, gate.cancelled, call.sent) == ([], 1, [])
