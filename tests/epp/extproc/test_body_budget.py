"""The body bytes of all exchanges together stay within their limit, and return to zero when the exchanges end."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.errors import EppError, Saturated
from epp.extproc.body_budget import PIECE_BYTES, BodyBudget
from epp.extproc.exchange import Exchange, ProtocolViolation
from epp.extproc.options import ExchangeSettings
from epp.extproc.service import PROCESS, methods
from epp.pb.ext_proc_pb2 import ProcessingRequest
from epp.wire.service import Handler
from tests.epp.doubles import (
    BUFFERED,
    NONE,
    Gate,
    World,
    completion,
    forwarded,
    read,
    request_body,
    request_headers,
    response_headers,
)
from tests.epp.extproc.test_exchange_properties import messages
from tests.epp.extproc.test_service import RecordedCall

HALF = 500


class Bounded(World):
    """Exchanges that share one account of body bytes."""

    def __init__(self, limit: int, gate: Gate | None = None) -> None:
        super().__init__(admission=gate)
        self.bodies = BodyBudget(limit)

    def exchange(self) -> Exchange:
        return Exchange(self.director, ExchangeSettings(), bodies=self.bodies)


def begun(world: Bounded, size: int = HALF) -> Exchange:
    exchange = world.exchange()
    exchange.received(request_headers(), 0)
    assert exchange.received(request_body(b" " * size, end_of_stream=False), 0) == []
    return exchange


def test_a_piece_beyond_the_bound_is_refused_and_the_others_go_on() -> None:
    world = Bounded(2 * (HALF + PIECE_BYTES))
    first, second, third = begun(world), begun(world), world.exchange()
    third.received(request_headers(), 0)
    (answer,) = read(third.received(request_body(b" ", end_of_stream=False), 0))
    assert answer.immediate_response.status.code == 503
    assert answer.immediate_response.body == (
        b"inference error: ServiceUnavailable - the picker holds 1,128 bytes of request bodies already, and "
        b"--max-held-bytes is 1,128; try again"
    )
    assert third.over
    assert world.telemetry.refusals == ["ServiceUnavailable"]
    second.closed(1)
    answers = first.received(request_body(completion()), 1)
    assert b"".join(piece for piece, _ in forwarded(read(answers))) == b" " * HALF + completion()


def test_small_pieces_count_with_what_they_cost() -> None:
    world = Bounded(10 * (PIECE_BYTES + 1))
    exchange = world.exchange()
    exchange.received(request_headers(), 0)
    for _ in range(10):
        assert exchange.received(request_body(b" ", end_of_stream=False), 0) == []
    (answer,) = read(exchange.received(request_body(b" ", end_of_stream=False), 0))
    assert answer.immediate_response.status.code == 503


def test_pieces_without_bytes_cost_what_one_does() -> None:
    world = Bounded(PIECE_BYTES)
    exchange = world.exchange()
    exchange.received(request_headers(), 0)
    for _ in range(100):
        assert exchange.received(request_body(b"", end_of_stream=False), 0) == []
    assert world.bodies.held == PIECE_BYTES


@pytest.mark.parametrize("error", [None, Saturated("full")])
@pytest.mark.parametrize("modes", [None, (BUFFERED, NONE)])
def test_a_request_that_waits_is_held_until_it_is_placed_or_sent_away(
    error: EppError | None, modes: tuple[int, int] | None
) -> None:
    world = Bounded(10_000, gate := Gate())
    exchange = world.exchange()
    exchange.received(request_headers(modes=modes), 0)
    exchange.received(request_body(completion()), 0)
    assert gate.waiting
    assert world.bodies.held == len(completion()) + PIECE_BYTES
    exchange.resumed(error, 1)
    assert world.bodies.held == 0


def test_an_answer_that_comes_before_the_body_is_whole_gives_it_back() -> None:
    world = Bounded(10_000)
    exchange = begun(world)
    exchange.received(response_headers(), 1)
    assert world.bodies.held == 0


@pytest.mark.parametrize(
    "end",
    [
        lambda handler: handler.cancelled(),
        lambda handler: handler.half_closed(),
        lambda handler: handler.received(b"\xff"),
        lambda handler: handler.received(request_headers().SerializeToString()),
    ],
    ids=["cancelled", "ended", "garbage", "headers twice"],
)
def test_a_stream_that_breaks_off_gives_back_what_it_held(end: Callable[[Handler], None]) -> None:
    world = Bounded(10_000)
    handler = methods(world.director, bodies=world.bodies)[PROCESS](RecordedCall())
    handler.received(request_headers().SerializeToString())
    handler.received(request_body(b" " * HALF, end_of_stream=False).SerializeToString())
    assert world.bodies.held == HALF + PIECE_BYTES
    end(handler)
    assert world.bodies.held == 0


steps = st.lists(st.tuples(st.integers(0, 2), messages | st.sampled_from(["close", "admit", "refuse"])), max_size=30)


@given(steps, st.integers(0, 200), st.booleans())
def test_whatever_happens_no_more_is_held_than_may_be_and_nothing_in_the_end(
    sent: list[tuple[int, ProcessingRequest | str]], limit: int, waits: bool
) -> None:
    world = Bounded(limit, Gate() if waits else None)
    held, exchanges = world.bodies, {i: world.exchange() for i in range(3)}
    for i, step in sent:
        exchange = exchanges[i]
        try:
            if isinstance(step, ProcessingRequest):
                exchange.received(step, 0)
            elif step == "close":
                exchange.closed(0)
            else:
                exchange.resumed(None if step == "admit" else Saturated("full"), 0)
        except ProtocolViolation:
            exchange.closed(0)
        assert 0 <= held.held <= limit
        if exchange.over:
            exchange.closed(0)
            exchanges[i] = world.exchange()
    for exchange in exchanges.values():
        exchange.closed(1)
        exchange.closed(1)
    assert held.held == 0


def test_what_is_held_and_refused_is_among_the_metrics() -> None:
    world = Bounded(HALF + PIECE_BYTES)
    begun(world)
    late = world.exchange()
    late.received(request_headers(), 0)
    late.received(request_body(b"x"), 0)
    assert {r.name: (list(r.samples), r.counter) for r in world.bodies.readings()} == {
        "tierwise_held_request_bytes": ([((), HALF + PIECE_BYTES)], False),
        "tierwise_held_request_bytes_limit": ([((), HALF + PIECE_BYTES)], False),
        "tierwise_held_request_bytes_refusals": ([((), 1)], True),
    }


@pytest.mark.parametrize("modes", [None, (BUFFERED, NONE)])
def test_nothing_is_held_while_an_engine_answers(modes: tuple[int, int] | None) -> None:
    world = Bounded(10_000)
    exchange = world.exchange()
    exchange.received(request_headers(modes=modes), 0)
    assert read(exchange.received(request_body(completion()), 0))
    assert world.ledger
    assert world.bodies.held == 0
