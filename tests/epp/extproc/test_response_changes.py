"""The changes that the picker makes to a response, mode by mode."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from epp.extproc.exchange import Exchange
from epp.extproc.options import ExchangeSettings
from epp.pb.ext_proc_pb2 import ProcessingResponse
from epp.pb.processing_mode_pb2 import ProcessingMode
from epp.picking.profile import Profile
from scorers.base import Candidate, Request
from scorers.labels.header_testing import HEADER, SERVED, HeaderTestingFilter
from scorers.load.queue import QueueScorer
from scorers.pickers import MaxScorePicker
from tests.epp.doubles import (
    BUFFERED,
    FULL_DUPLEX,
    NONE,
    STREAMED,
    World,
    completion,
    forwarded,
    kinds,
    read,
    request_body,
    request_headers,
    response_body,
    response_headers,
    response_trailers,
)

REWRITE = {"x_llm_d_model_name_rewrite": "other"}
ANSWER = b'{"id": "1", "model": "other", "choices": [{"text": "{\\"model\\": \\"other\\"}"}]}'
RENAMED = ANSWER.replace(b'"model": "other",', b'"model": "m",')
ASKING = ExchangeSettings(access_log=True, may_ask=True)


class Stamp(QueueScorer):
    type_name = "stamp"

    @override
    def response_headers(self, request: Request, candidate: Candidate) -> Mapping[str, str]:
        return {"x-session-token": candidate.address}


def stamped() -> World:
    return World(profile=Profile([], [], [(Stamp(), 1.0)], MaxScorePicker()))


def placed(world: World, mode: int, settings: ExchangeSettings | None = None, **headers: str) -> Exchange:
    exchange = Exchange(world.director, settings or ExchangeSettings())
    exchange.received(request_headers(modes=(BUFFERED, mode), **headers), 0)
    exchange.received(request_body(completion()), 0)
    return exchange


def set_and_removed(answer: ProcessingResponse) -> tuple[dict[str, bytes], list[str]]:
    mutation = answer.response_headers.response.header_mutation
    assert all(h.append_action == h.OVERWRITE_IF_EXISTS_OR_ADD for h in mutation.set_headers)
    return {h.header.key: h.header.raw_value for h in mutation.set_headers}, list(mutation.remove_headers)


def bodies(answers: list[bytes], mode: int) -> bytes:
    if mode == FULL_DUPLEX:
        return b"".join(piece for piece, _ in forwarded(read(answers), "response_body"))
    (answer,) = read(answers)
    mutation = answer.response_body.response.body_mutation
    assert bool(mutation.body) != mutation.clear_body
    return mutation.body


@pytest.mark.parametrize("mode", [FULL_DUPLEX, STREAMED, BUFFERED])
def test_the_clients_name_of_the_model_is_put_back_and_the_length_taken_out(mode: int) -> None:
    exchange = placed(World(), mode, **REWRITE)
    (headers,) = read(exchange.received(response_headers(content_length=str(len(ANSWER))), 1))
    assert set_and_removed(headers) == ({}, ["content-length"])
    assert bodies(exchange.received(response_body(ANSWER), 2), mode) == RENAMED


@given(st.lists(st.integers(0, len(ANSWER)), max_size=6), st.sampled_from([FULL_DUPLEX, STREAMED]), st.booleans())
def test_however_a_response_is_cut_its_name_is_put_back(cuts: list[int], mode: int, trailers: bool) -> None:
    world = World()
    exchange = placed(world, mode, **REWRITE)
    exchange.received(response_headers(), 1)
    out = b""
    for begin, end in pairwise([0, *sorted(cuts), len(ANSWER)]):
        ends = end == len(ANSWER) and begin < end and not trailers
        answers = exchange.received(response_body(ANSWER[begin:end], end_of_stream=ends), 2)
        out += bodies(answers, mode)
        if ends:
            break
    if trailers:
        assert kinds(exchange.received(response_trailers(), 3)) == ["response_trailers"]
    assert out == RENAMED
    exchange.closed(4)
    assert not world.ledger


def test_what_was_kept_back_goes_out_before_the_trailers() -> None:
    exchange = placed(World(), FULL_DUPLEX, **REWRITE)
    exchange.received(response_headers(), 1)
    out = bodies(exchange.received(response_body(b'{"model": "oth', end_of_stream=False), 2), FULL_DUPLEX)
    answers = exchange.received(response_trailers(), 3)
    assert kinds(answers) == ["response_body", "response_trailers"]
    assert out + bodies(answers[:1], FULL_DUPLEX) == b'{"model": "oth'
    assert [ends for _, ends in forwarded(read(answers), "response_body")] == [False]


@pytest.mark.parametrize("mode", [FULL_DUPLEX, STREAMED])
@pytest.mark.parametrize("headers", [{"content_encoding": "gzip"}, {"content_type": "text/plain"}])
def test_what_cannot_be_read_passes_as_it_is(mode: int, headers: dict[str, str]) -> None:
    world = World()
    exchange = placed(world, mode, **REWRITE)
    (answer,) = read(exchange.received(response_headers(**headers), 1))
    assert answer.WhichOneof("response") == "response_headers"
    assert set_and_removed(answer) == ({}, [])
    (piece,) = read(exchange.received(response_body(ANSWER), 2))
    sent = piece.response_body.response.body_mutation
    assert sent.streamed_response.body == (ANSWER if mode == FULL_DUPLEX else b"")
    assert (sent.body, sent.clear_body) == (b"", False)
    assert world.director.picks.not_renamed == ("content_encoding" in headers)


@pytest.mark.parametrize("model", ["m", ""])
def test_a_response_without_a_name_to_put_back_is_left_alone(model: str) -> None:
    exchange = placed(World(), FULL_DUPLEX, x_llm_d_model_name_rewrite=model)
    (answer,) = read(exchange.received(response_headers(content_length="5"), 1))
    assert not answer.response_headers.HasField("response")


def test_headers_of_plugins_are_set_in_every_mode() -> None:
    for mode in (FULL_DUPLEX, STREAMED, BUFFERED, NONE):
        exchange = placed(stamped(), mode)
        (answer,) = read(exchange.received(response_headers(), 1))
        assert set_and_removed(answer) == ({"x-session-token": b"10.0.0.1:8000"}, [])
        assert not answer.HasField("mode_override")


def test_a_lean_proxy_is_asked_for_a_response_whose_model_was_rewritten() -> None:
    world = World()
    exchange = Exchange(world.director, ASKING)
    (headers,) = read(exchange.received(request_headers(modes=(BUFFERED, NONE), **REWRITE), 0))
    asked = headers.mode_override
    assert (asked.request_body_mode, asked.response_header_mode) == (BUFFERED, ProcessingMode.SEND)
    assert asked.response_body_mode == NONE
    exchange.received(request_body(completion()), 0)
    (answer,) = read(exchange.received(response_headers(), 1))
    assert answer.mode_override.response_body_mode == FULL_DUPLEX
    assert set_and_removed(answer) == ({}, ["content-length"])
    assert bodies(exchange.received(response_body(ANSWER), 2), FULL_DUPLEX) == RENAMED
    assert not world.ledger, "it was seen to its end"


def test_a_lean_proxy_is_not_asked_for_what_cannot_be_changed() -> None:
    world = World()
    exchange = placed(world, NONE, ASKING, **REWRITE)
    (answer,) = read(exchange.received(response_headers(content_encoding="gzip"), 1))
    assert not answer.HasField("mode_override")
    exchange.closed(2)
    assert len(world.ledger) == 1, "the access log will tell"


def test_a_lean_proxy_is_asked_for_nothing_without_a_rewrite() -> None:
    exchange = Exchange(World().director, ASKING)
    (headers,) = read(exchange.received(request_headers(modes=(BUFFERED, NONE)), 0))
    assert not headers.HasField("mode_override")
    exchange.received(request_body(completion()), 0)
    (answer,) = read(exchange.received(response_headers(), 1))
    assert not answer.HasField("mode_override")


def test_a_proxy_that_keeps_bodies_and_cannot_be_asked_gets_its_responses_unchanged() -> None:
    exchange = placed(World(), NONE, **REWRITE)
    (answer,) = read(exchange.received(response_headers(content_length="9"), 1))
    assert set_and_removed(answer) == ({}, [])
    assert not answer.HasField("mode_override")


def test_the_answer_is_the_document_it_was() -> None:
    assert json.loads(RENAMED) == json.loads(ANSWER) | {"model": "m"}


@pytest.mark.parametrize("served", [None, "10.0.0.1:8000"])
def test_a_conformance_test_reads_what_the_proxy_says_has_answered_and_nothing_else(served: str | None) -> None:
    world = World(profile=Profile([HeaderTestingFilter()], [], [], MaxScorePicker()))
    exchange = placed(world, FULL_DUPLEX, **{HEADER: "10.0.0.2:8000"})
    message = response_headers()
    if served is not None:
        said = message.metadata_context.filter_metadata["envoy.lb"]
        said.update({"x-gateway-destination-endpoint-served": served})
    (answer,) = read(exchange.received(message, 1))
    assert set_and_removed(answer) == ({} if served is None else {SERVED: served.encode()}, [])
