"""A server that drains says so, finishes what it has begun, and begins nothing. Source: RFC 9113, section 6.8."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from epp.wire.http2.limits import Limits
from tests.conformance.client import Client
from tests.conformance.echo import Endings
from tests.conformance.fields import block, call, message
from tests.conformance.frames import Code, data, headers
from tests.conformance.grpc_calls import answer, ask
from tests.conformance.running import PATIENCE_S, Running, serving


@pytest.fixture
def running(endings: Endings) -> Iterator[Running]:
    with serving(endings, Limits()) as running:
        yield running


def until_goaway(client: Client) -> None:
    """Read up to the first GOAWAY."""
    while client.received.goaway is None:
        assert client.receive(), "closed without GOAWAY"


def test_a_call_begun_before_the_drain_is_answered_and_then_the_connection_ends(running: Running) -> None:
    with Client(running.address) as client:
        client.handshake()
        client.send(headers(1, block(call())))
        client.settle()
        drained = running.begin(running.server.drain(PATIENCE_S))
        until_goaway(client)
        assert client.received.goaway_code is None
        client.send(data(1, message(b"late"), end=True))
        assert answer(client).messages == (b"late",)
        client.until_closed()
        drained.result(PATIENCE_S)
        assert client.received.goaway is not None
        assert client.received.goaway.number() >= 1


def test_a_call_begun_after_the_last_goaway_is_not_acted_upon(running: Running) -> None:
    with Client(running.address) as client:
        client.handshake()
        client.send(headers(1, block(call())))
        client.settle()
        drained = running.begin(running.server.drain(PATIENCE_S))
        until_goaway(client)
        client.settle()  # a server that warns first has had its round trip
        client.send(headers(3, block(call())), data(3, message(b"new"), end=True))
        client.settle()
        goaway, reply = client.received.goaway, client.received.reply(3)
        assert goaway is not None
        assert goaway.number() >= 3 or reply.reset == Code.REFUSED_STREAM or not reply.sections
        client.send(data(1, message(b"late"), end=True))
        assert answer(client).status == 0
        client.until_closed()
        drained.result(PATIENCE_S)


def test_an_idle_connection_ends_at_once(running: Running) -> None:
    with Client(running.address) as client:
        client.handshake()
        assert ask(client).status == 0
        drained = running.begin(running.server.drain(PATIENCE_S))
        client.until_closed()
        drained.result(PATIENCE_S)
        assert client.received.goaway is not None
        assert client.received.goaway_code is None


def test_a_call_that_never_ends_is_ended_when_the_time_is_over(running: Running, endings: Endings) -> None:
    with Client(running.address) as client:
        client.handshake()
        client.send(headers(1, block(call((b"want", b"silence"), (b"name", b"drained")))))
        client.settle()
        running.begin(running.server.drain(0.05)).result(PATIENCE_S)
        client.until_closed()
        assert endings.wait("drained", "cancelled") == 1
