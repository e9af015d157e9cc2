"""The single message in the body of a unary gRPC request.

Source: gRPC over HTTP/2: a byte that tells whether the message is compressed, its length in four bytes, the message.
"""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from epp.errors import BadRequest, UnsupportedEncoding

HEADER_BYTES = 5

M = TypeVar("M", bound=Message)


def message_bytes(body: bytes) -> bytes:
    """Return the message in ``body``. Raises: BadRequest unless there is exactly one; UnsupportedEncoding."""
    if len(body) < HEADER_BYTES:
        raise BadRequest(f"the gRPC request ends within a frame: {len(body)} bytes, and its header has {HEADER_BYTES}")
    if body[0] == 1:
        raise UnsupportedEncoding("the gRPC message is compressed, and the picker reads plain ones; send it so")
    if body[0] != 0:
        raise BadRequest(f"the body is no gRPC request: its first byte is {body[0]}, where 0 or 1 belongs")
    said, held = int.from_bytes(body[1:HEADER_BYTES], "big"), len(body) - HEADER_BYTES
    if said > held:
        raise BadRequest(f"the gRPC request ends within a frame: {held:,} bytes of a message of {said:,}")
    if said < held:
        raise BadRequest(f"{held - said:,} bytes follow the gRPC message of {said:,}; a unary request has one message")
    return body[HEADER_BYTES:]


def frame(message: bytes) -> bytes:
    """Return ``message`` framed as the body of a request."""
    return b"\x00" + len(message).to_bytes(4, "big") + message


def read(body: bytes, message: M) -> M:
    """Return ``message``, filled from the frame in ``body``. Raises: BadRequest for whatever is wrong with it."""
    return decoded(message_bytes(body), message)


def decoded(data: bytes, message: M) -> M:
    """Return ``message``, filled from its encoding ``data``. Raises: BadRequest if ``data`` is not such a message."""
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise BadRequest(f"the gRPC message is not a {message.DESCRIPTOR.full_name}: {error}") from error
    return message
