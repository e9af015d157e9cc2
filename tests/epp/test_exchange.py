"""The exchange, mode by mode: which of the proxy's messages is answered with what."""

from __future__ import annotations

import pytest

from epp.decision import Cause, Usage
from epp.exchange import Exchange, ExchangeSettings, ProtocolViolation
from tests.epp.doubles import (
    BUFFERED,
    DESTINATION,
    FULL_DUPLEX,
    NONE,
    STREAMED,
    World,
    candidate,
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
    response_trailers,
)

BODY = completion("hello " * 30_000)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def exchange(world: World) -> Exchange:
    return Exchange(world.director, ExchangeSettings())


# The request.


@pytest.mark.parametrize("modes", [(FULL_DUPLEX, FULL_DUPLEX), None], ids=["full duplex", "no protocol_config"])
def test_full_duplex_answers_headers_and_body_when_the_body_is_complete(
    exchange: Exchange, modes: tuple[int, int] | None
) -> None:
    assert exchange.received(request_headers(modes=modes), 0) == []
    assert exchange.received(request_body(BODY[:70_000], end_of_stream=False), 0) == []
    answers = read(exchange.received(request_body(BODY[70_000:]), 0))
    assert answers[0].WhichOneof("response") == "request_headers"
    assert destination_of(answers[0]) == "10.0.0.1:8000"
    pieces = forwarded(answers)
    assert b"".join(body for body, _ in pieces) == BODY
    assert [len(body) for body, _ in pieces] == [62_000, 62_000, len(BODY) - 124_000]
    assert [ends for _, ends in pieces] == [False, False, True]


def test_full_duplex_trailers_end_the_body_and_are_answered_last(exchange: Exchange) -> None:
    exchange.received(request_headers(), 0)
    assert exchange.received(request_body(BODY, end_of_stream=False), 0) == []
    answers = exchange.received(request_trailers(), 0)
    assert kinds(answers) == ["request_headers", "request_body", "request_body", "request_body", "request_trailers"]
    assert [ends for _, ends in forwarded(read(answers))] == [False, False, False]


def test_buffered_answers_headers_at_once_and_the_decision_with_the_body(exchange: Exchange) -> None:
    headers = read(exchange.received(request_headers(modes=(BUFFERED, NONE)), 0))
    assert [answer.WhichOneof("response") for answer in headers] == ["request_headers"]
    assert not headers[0].request_headers.response.HasField("header_mutation")
    (answer,) = read(exchange.received(request_body(BODY), 0))
    assert destination_of(answer) == "10.0.0.1:8000"
    assert not answer.request_body.response.HasField("body_mutation")


def test_buffered_trailers_are_answered_empty(exchange: Exchange) -> None:
    exchange.received(request_headers(modes=(BUFFERED, NONE)), 0)
    (answer,) = read(exchange.received(request_body(BODY, end_of_stream=False), 0))
    assert destination_of(answer) == "10.0.0.1:8000"
    assert kinds(exchange.received(request_trailers(), 0)) == ["request_trailers"]


def test_buffered_trailers_without_a_body_carry_the_decision_in_the_metadata(world: World, exchange: Exchange) -> None:
    exchange.received(request_headers(modes=(BUFFERED, NONE)), 0)
    (answer,) = read(exchange.received(request_trailers(), 0))
    assert answer.WhichOneof("response") == "request_trailers"
    assert destination_of(answer) in {"10.0.0.1:8000", "10.0.0.2:8000"}
    assert len(world.ledger.in_flight) == 1
