"""Laws of the exchange that hold for all messages, however bodies are cut into pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from epp.extproc.exchange import Exchange, ProtocolViolation
from epp.extproc.options import ExchangeSettings
from epp.pb.ext_proc_pb2 import ProcessingRequest
from tests.epp.doubles import (
    BUFFERED,
    FULL_DUPLEX,
    NONE,
    STREAMED,
    World,
    completion,
    destination_of,
    forwarded,
    read,
    request_body,
    request_headers,
    request_trailers,
    response_body,
    response_headers,
    response_trailers,
)

pieces = st.lists(st.binary(max_size=200) | st.binary(max_size=3).map(lambda b: b * 40_000), min_size=1, max_size=6)
modes = st.sampled_from([FULL_DUPLEX, BUFFERED, NONE, STREAMED, 3, 5, 99])
messages = st.one_of(
    st.builds(request_headers, end_of_stream=st.booleans(), modes=st.none() | st.tuples(modes, modes)),
    st.builds(request_body, st.sampled_from([b"", b"{", completion()]), end_of_stream=st.booleans()),
    st.just(request_trailers()),
    st.builds(response_headers, st.sampled_from([200, 404]), end_of_stream=st.booleans()),
    st.builds(response_body, st.sampled_from([b"", b"x" * 70_000]), end_of_stream=st.booleans()),
    st.just(response_trailers()),
)


@given(st.lists(messages, max_size=12), st.booleans())
def test_whatever_is_sent_every_pick_ends_exactly_once_or_is_left_to_the_log(
    sent: list[ProcessingRequest], access_log: bool
) -> None:
    world = World()
    exchange = Exchange(world.director, ExchangeSettings(access_log=access_log))
    for now, message in enumerate(sent):
        try:
            exchange.received(message, now)
        except ProtocolViolation:
            break
        if exchange.over:
            break
    exchange.closed(len(sent))
    exchange.closed(len(sent))
    picks, closed = len(world.ledger.picks), len(world.ledger.closed)
    assert picks <= 1
    assert closed == len(world.telemetry.outcomes) == picks - len(world.ledger)
    assert access_log or not world.ledger


@given(st.data(), st.booleans(), st.booleans())
def test_however_a_request_is_cut_its_body_arrives_byte_for_byte(
    data: st.DataObject, trailers: bool, big: bool
) -> None:
    body = completion("word " * (30_000 if big else 10))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=5)))
    parts = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    exchange = Exchange(World().director, ExchangeSettings())
    exchange.received(request_headers(), 0)
    answers: list[bytes] = []
    for number, part in enumerate(parts, 1):
        ends = number == len(parts) and not trailers
        answers += exchange.received(request_body(part, end_of_stream=ends), 0)
    if trailers:
        answers += exchange.received(request_trailers(), 0)
    out = read(answers)
    assert destination_of(out[0]) == "10.0.0.1:8000"
    chunks = forwarded(out)
    assert b"".join(chunk for chunk, _ in chunks) == body
    assert all(len(chunk) <= 62_000 for chunk, _ in chunks)
    assert [ends for _, ends in chunks] == [False] * (len(chunks) - 1) + [not trailers]


@given(pieces, st.booleans())
def test_however_a_response_is_cut_it_arrives_byte_for_byte(parts: list[bytes], trailers: bool) -> None:
    world = World()
    exchange = Exchange(world.director, ExchangeSettings())
    exchange.received(request_headers(end_of_stream=True), 0)
    exchange.received(response_headers(), 0)
    for number, part in enumerate(parts, 1):
        ends = number == len(parts) and not trailers
        chunks = forwarded(read(exchange.received(response_body(part, end_of_stream=ends), 0)), "response_body")
        assert b"".join(chunk for chunk, _ in chunks) == part
        assert [last for _, last in chunks] == [False] * (len(chunks) - 1) + [ends]
    if trailers:
        exchange.received(response_trailers(), 0)
    assert not world.ledger
    assert world.telemetry.outcomes[0].response_bytes == sum(map(len, parts))
