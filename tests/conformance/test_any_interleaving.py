"""Calls that share a connection in any order, cut into frames anywhere, each get back exactly their own messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from random import Random

import hpack
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conformance.client import Address, Client
from tests.conformance.fields import STREAM, UNARY, call, message
from tests.conformance.frames import Field, Setting, continuation, data, headers, priority, reset, window_update
from tests.conformance.grpc_calls import answer

Step = Callable[[int, hpack.Encoder], bytes]
ENDINGS = ("data", "empty data", "trailers", "reset")


@dataclass(frozen=True, slots=True)
class Script:
    """One call: its messages, the frames that carry them, the credit these give, and whether an answer is owed."""

    contents: tuple[bytes, ...]
    steps: tuple[Step, ...]
    granted_bytes: int
    answered: bool


def packed(encoder: hpack.Encoder, fields: list[Field], *, huffman: bool) -> bytes:
    """A field block that uses the dynamic table."""
    return encoder.encode([(name.decode(), value.decode()) for name, value in fields], huffman=huffman)


def opening(fields: list[Field], cut: int | None, *, huffman: bool) -> Step:
    """HEADERS, with a CONTINUATION from byte ``cut`` on where given."""

    def step(stream: int, encoder: hpack.Encoder) -> bytes:
        block = packed(encoder, fields, huffman=huffman)
        if cut is None:
            return headers(stream, block)
        return headers(stream, block[:cut], complete=False) + continuation(stream, block[cut:])

    return step


def piece(content: bytes, padding: int | None, *, end: bool = False) -> Step:
    """Return a step that sends ``content`` in a DATA frame."""
    return lambda stream, _: data(stream, content, end=end, padding=padding)


def trailers(stream: int, encoder: hpack.Encoder) -> bytes:
    """The HEADERS that end a request."""
    return headers(stream, packed(encoder, [(b"checksum", b"%d" % stream)], huffman=True), end=True)


def crediting(stream: int, _: hpack.Encoder) -> bytes:
    """Return a WINDOW_UPDATE frame for one more byte."""
    return window_update(stream, 1)


def cancelling(stream: int, _: hpack.Encoder) -> bytes:
    """Return an RST_STREAM frame that cancels."""
    return reset(stream)


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    contents = draw(st.lists(st.binary(max_size=30), max_size=4))
    whole = b"".join(message(content) for content in contents)
    cuts = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    pieces = [whole[a:b] for a, b in pairwise([0, *cuts, len(whole)])]
    paddings = [draw(st.sampled_from([None, None, 0, 3])) for _ in pieces]
    ending = draw(st.sampled_from(ENDINGS))
    custom = [(b"name", b"%d" % draw(st.integers(0, 9)))] * draw(st.integers(0, 2))
    fields = call(*custom, path=draw(st.sampled_from([UNARY, STREAM])))
    steps = [opening(fields, draw(st.sampled_from([None, 0, 1, 9])), huffman=draw(st.booleans()))]
    for n, (content, padding) in enumerate(zip(pieces, paddings, strict=True)):
        steps.append(piece(content, padding, end=ending == "data" and n == len(pieces) - 1))
        if draw(st.integers(0, 4)) == 0:
            steps.append(lambda stream, _: priority(stream, 0))
    granted_bytes = draw(st.integers(0, 3))
    steps.extend([crediting] * granted_bytes)
    match ending:
        case "empty data":
            steps.append(piece(b"", None, end=True))
        case "trailers":
            steps.append(trailers)
        case "reset":
            steps.append(cancelling)
    return Script(tuple(contents), tuple(steps), granted_bytes, ending != "reset")


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    plan=st.lists(scripts(), min_size=1, max_size=6),
    order=st.randoms(use_true_random=False),
    window_bytes=st.sampled_from([1, 7, 100, 65_535]),
    pieces_bytes=st.sampled_from([0, 1, 13]),
)
def test_interleaved_calls_get_their_own_messages(
    address: Address, plan: list[Script], order: Random, window_bytes: int, pieces_bytes: int
) -> None:
    turns = [n for n, script in enumerate(plan) for _ in script.steps]
    order.shuffle(turns)
    with Client(address) as client:
        client.handshake((Setting.INITIAL_WINDOW_SIZE, window_bytes))
        client.generous = True
        streams: dict[int, int] = {}
        steps = [iter(script.steps) for script in plan]
        for turn in turns:
            if turn not in streams:
                streams[turn] = 2 * len(streams) + 1
                client.received.grant(streams[turn], plan[turn].granted_bytes)
            stream = streams[turn]
            client.send(next(steps[turn])(stream, client.encoder))
        client.flush(pieces_bytes)
        for n, script in enumerate(plan):
            if script.answered:
                got = answer(client, streams[n])
                assert (got.status, got.messages) == (0, script.contents)
        client.settle()
        assert not client.closed
