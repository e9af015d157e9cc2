"""The exchange, mode by mode: the answers to each of the proxy's messages."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from epp.decision import Cause, Usage
from epp.extproc.exchange import Exchange, ProtocolViolation
from epp.extproc.options import ExchangeSettings
from epp.pb.ext_proc_pb2 import ProcessingRequest
from epp.pool.ledger import REPORT_S
from tests.epp.doubles import (
    BUFFERED,
    DESTINATION,
    FULL_DUPLEX,
    NONE,
    STREAMED,
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
    assert len(world.ledger) == 1


@pytest.mark.parametrize("mode", [FULL_DUPLEX, BUFFERED, NONE, STREAMED])
def test_a_request_without_a_body_is_placed_by_its_headers(world: World, mode: int) -> None:
    exchange = Exchange(world.director, ExchangeSettings())
    (answer,) = read(exchange.received(request_headers(end_of_stream=True, modes=(mode, NONE)), 0))
    assert answer.WhichOneof("response") == "request_headers"
    assert destination_of(answer) in {"10.0.0.1:8000", "10.0.0.2:8000"}


def test_an_empty_body_is_a_request_without_one(exchange: Exchange) -> None:
    exchange.received(request_headers(), 0)
    answers = read(exchange.received(request_body(b""), 0))
    assert destination_of(answers[0]) in {"10.0.0.1:8000", "10.0.0.2:8000"}
    assert forwarded(answers) == [(b"", True)]


def test_a_body_that_the_proxy_keeps_to_itself_is_not_waited_for(exchange: Exchange) -> None:
    (answer,) = read(exchange.received(request_headers(modes=(NONE, NONE)), 0))
    assert destination_of(answer) in {"10.0.0.1:8000", "10.0.0.2:8000"}
    assert kinds(exchange.received(request_trailers(), 0)) == ["request_trailers"]


@pytest.mark.parametrize(("mode", "name"), [(STREAMED, "STREAMED"), (5, "GRPC"), (99, "99")])
def test_a_body_mode_that_lets_the_request_leave_first_is_refused_by_name(
    exchange: Exchange, mode: int, name: str
) -> None:
    with pytest.raises(ProtocolViolation, match=f"request_body_mode {name} would let the request leave"):
        exchange.received(request_headers(modes=(mode, NONE)), 0)


def test_a_proxy_that_only_observes_is_let_go(exchange: Exchange) -> None:
    message = request_headers()
    message.observability_mode = True
    assert exchange.received(message, 0) == []
    assert exchange.over


@pytest.mark.parametrize("clear", [True, False])
def test_the_route_is_chosen_again_only_when_set(world: World, clear: bool) -> None:
    exchange = Exchange(world.director, ExchangeSettings(clear_route_cache=clear))
    exchange.received(request_headers(modes=(BUFFERED, NONE)), 0)
    (answer,) = read(exchange.received(request_body(BODY), 0))
    assert answer.request_body.response.clear_route_cache is clear


def test_the_pick_id_travels_in_the_metadata(world: World, exchange: Exchange) -> None:
    for expected in range(1, 12):
        exchange = Exchange(world.director, ExchangeSettings())
        exchange.received(request_headers(modes=(BUFFERED, NONE)), 0)
        (answer,) = read(exchange.received(request_body(BODY), 0))
        assert answer.dynamic_metadata["tierwise"]["pick"] == str(expected)


def test_scores_go_into_the_metadata_on_request(world: World) -> None:
    exchange = Exchange(world.director, ExchangeSettings(emit_endpoint_scores=True))
    exchange.received(request_headers(modes=(BUFFERED, NONE)), 0)
    (answer,) = read(exchange.received(request_body(BODY), 0))
    scores = answer.dynamic_metadata["envoy.lb"]["x-gateway-destination-endpoint-scores"]
    assert dict(scores) == {"10.0.0.1:8000": 1.0, "10.0.0.2:8000": 0.0}


REWRITE = {"x_llm_d_model_name_rewrite": "other"}


def test_a_rewritten_body_goes_out_in_chunks_with_its_own_length(exchange: Exchange) -> None:
    exchange.received(request_headers(**REWRITE), 0)
    answers = read(exchange.received(request_body(BODY), 0))
    body = b"".join(piece for piece, _ in forwarded(answers))
    assert body == BODY.replace(b'"m"', b'"other"', 1)
    headers = answers[0].request_headers.response.header_mutation.set_headers
    assert {h.header.key: h.header.raw_value for h in headers}["content-length"] == str(len(body)).encode()


def test_a_rewritten_buffered_body_replaces_the_clients(exchange: Exchange) -> None:
    exchange.received(request_headers(modes=(BUFFERED, NONE), **REWRITE), 0)
    (answer,) = read(exchange.received(request_body(BODY), 0))
    common = answer.request_body.response
    assert common.body_mutation.body == BODY.replace(b'"m"', b'"other"', 1)
    headers = {h.header.key: h.header.raw_value for h in common.header_mutation.set_headers}
    assert headers["content-length"] == str(len(common.body_mutation.body)).encode()
    assert destination_of(answer) == "10.0.0.1:8000"


# Subsets.


@pytest.mark.parametrize("where", ["headers", "body"])
@pytest.mark.parametrize(
    "subset", [["10.0.0.2:8000"], "10.0.0.2:8000", "10.0.0.9:1, 10.0.0.2:8000", ["10.0.0.2"], ["10.0.0.9:1,10.0.0.2"]]
)
def test_only_the_subset_is_picked_from(exchange: Exchange, subset: object, where: str) -> None:
    exchange.received(request_headers(subset=subset if where == "headers" else None), 0)
    answers = read(exchange.received(request_body(BODY, subset=subset if where == "body" else None), 0))
    assert destination_of(answers[0]) == "10.0.0.2:8000"


@pytest.mark.parametrize("subset", [[], "", ["10.0.0.2:8001"], ["10.0.0.3"], 7.0], ids=str)
@pytest.mark.parametrize("bodiless", [True, False])
def test_a_subset_that_allows_nobody_is_refused(world: World, subset: object, bodiless: bool) -> None:
    exchange = Exchange(world.director, ExchangeSettings())
    answers = exchange.received(request_headers(subset=subset, end_of_stream=bodiless), 0)
    if not bodiless:
        answers = exchange.received(request_body(BODY), 0)
    (answer,) = read(answers)
    assert answer.immediate_response.status.code == 503
    assert answer.immediate_response.body.startswith(b"inference error: ServiceUnavailable - ")
    headers = {h.header.key: h.header.raw_value for h in answer.immediate_response.headers.set_headers}
    assert headers == {"x-llm-d-request-dropped-reason": b"rejected-no-endpoints", "retry-after": b"1"}


# Refusals.


@pytest.mark.parametrize("mode", [FULL_DUPLEX, BUFFERED])
@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b"{", 400, b"inference error: BadRequest - the request body is not valid JSON"),
        (b'{"prompt": "x"}', 400, b"inference error: BadRequest - model not found in request body"),
        (b" " * 300_001, 413, b"inference error: RequestTooLarge - "),
    ],
)
def test_a_refused_request_ends_the_exchange_with_its_status(
    world: World, mode: int, body: bytes, status: int, text: bytes
) -> None:
    exchange = Exchange(world.director, ExchangeSettings(max_request_bytes=300_000))
    exchange.received(request_headers(modes=(mode, NONE)), 0)
    (answer,) = read(exchange.received(request_body(body), 0))
    assert answer.immediate_response.status.code == status
    assert answer.immediate_response.body.startswith(text)
    assert exchange.over
    assert not world.ledger


def test_a_body_that_grows_too_large_is_refused_before_it_ends(world: World) -> None:
    exchange = Exchange(world.director, ExchangeSettings(max_request_bytes=100))
    exchange.received(request_headers(), 0)
    assert exchange.received(request_body(b" " * 100, end_of_stream=False), 0) == []
    (answer,) = read(exchange.received(request_body(b" ", end_of_stream=False), 0))
    assert answer.immediate_response.status.code == 413
    assert world.telemetry.refusals == ["RequestTooLarge"]


def test_no_endpoint_at_all_is_503(world: World) -> None:
    exchange = Exchange(World(endpoints=0).director, ExchangeSettings())
    exchange.received(request_headers(), 0)
    (answer,) = read(exchange.received(request_body(BODY), 0))
    assert answer.immediate_response.status.code == 503


# The response.


def placed(world: World, settings: ExchangeSettings | None = None, response_mode: int = FULL_DUPLEX) -> Exchange:
    """Return an exchange whose request was placed at second 10."""
    exchange = Exchange(world.director, settings or ExchangeSettings())
    exchange.received(request_headers(modes=(BUFFERED, response_mode)), 10.0)
    exchange.received(request_body(BODY), 10.0)
    assert len(world.ledger) == 1
    return exchange


def test_a_full_duplex_response_is_forwarded_piece_by_piece(world: World) -> None:
    exchange = placed(world)
    assert kinds(exchange.received(response_headers(), 11.0)) == ["response_headers"]
    answers = exchange.received(response_body(b"x" * 130_000, end_of_stream=False), 12.0)
    assert [(len(body), ends) for body, ends in forwarded(read(answers), "response_body")] == [
        (62_000, False),
        (62_000, False),
        (6_000, False),
    ]
    assert world.ledger
    answers = exchange.received(response_body(b"", end_of_stream=True), 13.0)
    assert forwarded(read(answers), "response_body") == [(b"", True)]
    assert not world.ledger


def test_a_prompt_is_computed_when_the_first_byte_of_its_answer_passes(world: World) -> None:
    exchange = placed(world)
    exchange.received(response_headers(), 11.0)
    exchange.received(response_body(b"", end_of_stream=False), 11.0)
    assert [c.in_flight_tokens > 0 for c in world.pool.candidates()] == [True, False]
    exchange.received(response_body(b"x", end_of_stream=False), 12.0)
    assert [(c.in_flight, c.in_flight_tokens) for c in world.pool.candidates()] == [(1, 0), (0, 0)]


@pytest.mark.parametrize("mode", [STREAMED, BUFFERED])
def test_other_response_bodies_are_acknowledged_one_by_one(world: World, mode: int) -> None:
    exchange = placed(world, response_mode=mode)
    exchange.received(response_headers(), 11.0)
    (answer,) = read(exchange.received(response_body(b"x", end_of_stream=False), 12.0))
    assert answer.WhichOneof("response") == "response_body"
    assert not answer.response_body.HasField("response")
    assert len(exchange.received(response_body(b"x"), 13.0)) == 1
    assert world.ledger.closed == [(1, Cause.COMPLETED)]


def test_what_was_seen_of_a_response_is_reported(world: World) -> None:
    exchange = placed(world)
    headers = response_headers(content_type="text/event-stream; charset=utf-8")
    served = headers.metadata_context.filter_metadata["envoy.lb"]
    served.update({"x-gateway-destination-endpoint-served": "10.0.0.2:8000"})
    exchange.received(headers, 10.25)
    exchange.received(response_body(b"", end_of_stream=False), 10.5)
    exchange.received(response_body(b'data: {"choices":[]}\n\nda', end_of_stream=False), 11.0)
    usage = b'ta: {"usage":{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}}}\n\n'
    exchange.received(response_body(usage + b"data: [DONE]\n\n", end_of_stream=False), 12.0)
    assert kinds(exchange.received(response_trailers(), 13.0)) == ["response_trailers"]
    (outcome,) = world.telemetry.outcomes
    assert (outcome.cause, outcome.status, outcome.duration_s, outcome.ttft_s) == (Cause.COMPLETED, 200, 3.0, 1.0)
    assert (outcome.streaming, outcome.served_by, outcome.errors) == (True, "10.0.0.2:8000", [])
    assert outcome.usage == Usage(prompt_tokens=7, completion_tokens=3, cached_tokens=4)
    assert outcome.response_bytes == len(usage) + 24 + 14


def test_events_before_the_prompt_is_computed_are_no_answer(world: World) -> None:
    exchange = placed(world)
    exchange.received(response_headers(content_type="text/event-stream"), 10.1)
    for name, at in ((b"response.created", 10.2), (b"response.in_progress", 10.3)):
        event = b"event: " + name + b'\ndata: {"type":"' + name + b'"}\n\n'
        exchange.received(response_body(event, end_of_stream=False), at)
    assert [c.in_flight_tokens > 0 for c in world.pool.candidates()] == [True, False]
    event = b'event: response.output_item.added\ndata: {"type":"response.output_item.added"}\n\n'
    exchange.received(response_body(event, end_of_stream=False), 12.5)
    assert [c.in_flight_tokens for c in world.pool.candidates()] == [0, 0]
    exchange.received(response_body(b"data: [DONE]\n\n"), 13.0)
    (outcome,) = world.telemetry.outcomes
    assert outcome.ttft_s == 2.5


def test_a_request_counts_where_it_is_answered(world: World) -> None:
    exchange = placed(world)
    headers = response_headers()
    served = headers.metadata_context.filter_metadata["envoy.lb"]
    served.update({"x-gateway-destination-endpoint-served": "10.0.0.2:8000"})
    exchange.received(headers, 10.25)
    assert [c.in_flight for c in world.pool.candidates()] == [0, 1]
    exchange.received(response_body(b"x"), 11.0)
    assert [c.in_flight for c in world.pool.candidates()] == [0, 0]
    assert world.director.picks.served_elsewhere == 1


def test_a_response_without_a_body_ends_with_its_headers(world: World) -> None:
    exchange = placed(world)
    exchange.received(response_headers(503, end_of_stream=True), 11.0)
    (outcome,) = world.telemetry.outcomes
    assert (outcome.status, outcome.response_bytes, outcome.errors) == (503, 0, ["ModelServerError"])
    assert not world.ledger


def test_a_compressed_response_is_forwarded_and_not_read(world: World) -> None:
    exchange = placed(world)
    exchange.received(response_headers(content_encoding="gzip"), 11.0)
    exchange.received(response_body(b'{"usage":{"prompt_tokens":1}}'), 12.0)
    assert world.telemetry.outcomes[0].usage is None


def test_a_response_of_the_proxys_own_needs_no_request(world: World) -> None:
    exchange = Exchange(world.director, ExchangeSettings())
    assert kinds(exchange.received(response_headers(431), 0)) == ["response_headers"]
    assert len(exchange.received(response_body(b"too large"), 0)) == 1
    exchange.closed(0)
    assert world.telemetry.outcomes == []


def test_a_response_of_the_proxys_own_may_overtake_an_unfinished_request(world: World) -> None:
    exchange = Exchange(world.director, ExchangeSettings())
    exchange.received(request_headers(), 0)
    exchange.received(request_body(BODY, end_of_stream=False), 0)
    assert kinds(exchange.received(response_headers(408, end_of_stream=True), 0)) == ["response_headers"]
    exchange.closed(0)
    assert world.ledger.picks == []


# The end of a stream.


def test_a_client_that_leaves_before_the_response_frees_its_endpoint(world: World) -> None:
    exchange = placed(world)
    exchange.closed(12.0)
    exchange.closed(13.0)
    assert world.ledger.closed == [(1, Cause.DISCONNECTED)]
    assert world.telemetry.outcomes[0].duration_s == 2.0


def test_a_client_that_leaves_during_the_response_frees_its_endpoint(world: World) -> None:
    exchange = placed(world)
    exchange.received(response_headers(), 11.0)
    exchange.received(response_body(b"x", end_of_stream=False), 12.0)
    exchange.closed(13.0)
    assert world.ledger.closed == [(1, Cause.DISCONNECTED)]


def test_a_stream_that_ends_after_its_response_changes_nothing(world: World) -> None:
    exchange = placed(world)
    exchange.received(response_headers(), 11.0)
    exchange.received(response_body(b"x"), 12.0)
    exchange.closed(13.0)
    assert world.ledger.closed == [(1, Cause.COMPLETED)]


def test_a_stream_that_ends_after_lean_response_headers_leaves_the_end_to_the_access_log(world: World) -> None:
    exchange = placed(world, ExchangeSettings(access_log=True), response_mode=NONE)
    exchange.received(response_headers(), 11.0)
    exchange.closed(11.0)
    assert len(world.ledger) == 1


def test_without_an_access_log_lean_response_headers_are_the_end(world: World) -> None:
    exchange = placed(world, response_mode=NONE)
    exchange.received(response_headers(), 11.0)
    exchange.closed(12.0)
    assert world.ledger.closed == [(1, Cause.COMPLETED)]


def test_a_sampled_response_that_breaks_off_is_not_left_to_the_access_log(world: World) -> None:
    exchange = placed(world, ExchangeSettings(access_log=True))
    exchange.received(response_headers(), 11.0)
    exchange.closed(12.0)
    assert world.ledger.closed == [(1, Cause.DISCONNECTED)]


def test_a_lean_stream_that_ends_frees_its_endpoint_even_if_the_access_log_never_reports(world: World) -> None:
    exchange = placed(world, ExchangeSettings(access_log=True), response_mode=NONE)
    exchange.closed(12.0)
    assert world.ledger.expire(12.0 + REPORT_S - 0.1) == []
    assert world.ledger.expire(12.0 + REPORT_S) == [(1, Cause.UNREPORTED)]


# Violations.


def test_an_end_of_the_body_that_the_proxy_repeats_is_not_read_again(exchange: Exchange) -> None:
    exchange.received(request_headers(), 0)
    whole = completion()
    assert exchange.received(request_body(whole[:20], end_of_stream=False), 0) == []
    _, *pieces = read(exchange.received(request_body(whole[20:]), 0))
    sent = [piece.request_body.response.body_mutation.streamed_response for piece in pieces]
    assert b"".join(piece.body for piece in sent) == whole
    assert exchange.received(request_body(whole[20:]), 0) == []
    assert len(read(exchange.received(response_headers(), 0))) == 1


def test_messages_out_of_order_are_violations_and_leak_nothing() -> None:
    steps = {
        "request headers": request_headers,
        "request body": request_body,
        "request trailers": request_trailers,
        "response headers": response_headers,
        "response body": response_body,
        "response trailers": response_trailers,
    }
    complete = [request_headers(), request_body(completion()), response_headers(), response_body(b"x")]
    for name, step in steps.items():
        world = World()
        exchange = Exchange(world.director, ExchangeSettings())
        for message in complete:
            exchange.received(message, 0)
        with pytest.raises(ProtocolViolation):
            exchange.received(step(), 0)
        exchange.closed(0)
        assert not world.ledger, name


@pytest.mark.parametrize("first", [request_body, request_trailers, response_body, response_trailers])
def test_a_stream_begins_with_headers(exchange: Exchange, first: Callable[[], ProcessingRequest]) -> None:
    with pytest.raises(ProtocolViolation, match="out of order"):
        exchange.received(first(), 0)


def test_an_empty_message_is_a_violation(exchange: Exchange) -> None:
    with pytest.raises(ProtocolViolation, match="without request or response"):
        exchange.received(ProcessingRequest(), 0)


def test_header_values_win_over_what_the_client_said(exchange: Exchange) -> None:
    exchange.received(request_headers(modes=(BUFFERED, NONE), x_gateway_destination_endpoint="evil:1"), 0)
    (answer,) = read(exchange.received(request_body(BODY), 0))
    (option,) = answer.request_body.response.header_mutation.set_headers
    assert (option.header.key, option.header.raw_value) == (DESTINATION, b"10.0.0.1:8000")
    assert option.append_action == option.OVERWRITE_IF_EXISTS_OR_ADD
