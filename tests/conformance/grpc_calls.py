"""One gRPC call from a test: send it, have the whole answer, checked for the shape that the protocol prescribes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from tests.conformance.client import Client
from tests.conformance.fields import UNARY, block, call, message
from tests.conformance.frames import Field, data, headers
from tests.conformance.received import Reply

PERCENT_ENCODED = re.compile(rb"([ -$&-~]|%[0-9A-F]{2})*")
Status = int


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; ``status`` is None where the stream was reset or the response is not gRPC's."""

    messages: tuple[bytes, ...]
    status: Status | None
    text: str
    http_status: int | None
    reset: int | None
    sections: int


def messages_in(content: bytes) -> tuple[bytes, ...]:
    """The uncompressed messages in a response's ``content``; all of it."""
    messages = []
    while content:
        assert content[0] == 0, "a compressed message nobody asked for"
        end = 5 + int.from_bytes(content[1:5])
        assert len(content) >= end, "the response ends inside a message"
        messages.append(content[5:end])
        content = content[end:]
    return tuple(messages)


def check_shape(reply: Reply) -> None:
    """Raises: AssertionError unless an answer with gRPC status has it in trailers, well formed. Source: Responses."""
    last = dict(reply.sections[-1])
    assert reply.http_status == 200, "HTTP-Status is 200"
    assert (reply.first(b"content-type") or b"").startswith(b"application/grpc"), "Content-Type in the first section"
    assert b"grpc-status" in last, "Status is in Trailers"
    assert re.fullmatch(rb"0|[1-9]\d*", last[b"grpc-status"]), "without any leading zeros"
    assert PERCENT_ENCODED.fullmatch(last.get(b"grpc-message", b"")), "Status-Message is percent-encoded"
    assert len(reply.sections) <= 2, "Response-Headers and Trailers, or Trailers-Only"


def answer(client: Client, stream: int = 1) -> Answer:
    """The whole answer on ``stream``, checked."""
    reply = client.reply(stream)
    if reply.reset is None and reply.grpc_status is not None:
        check_shape(reply)
    whole = reply.ended and reply.grpc_status is not None
    return Answer(
        messages_in(bytes(reply.content)) if whole else (),
        reply.grpc_status if reply.ended else None,
        unquote_to_bytes(reply.first(b"grpc-message") or b"").decode(),
        reply.http_status,
        reply.reset,
        len(reply.sections),
    )


def ask(client: Client, *more: Field, content: bytes = b"ping", path: bytes = UNARY, stream: int = 1) -> Answer:
    """Make one call with one message, and have its answer."""
    client.send(headers(stream, block(call(*more, path=path))), data(stream, message(content), end=True))
    return answer(client, stream)
