"""HTTP/2 frames as bytes: the nine-byte header, the rules for each type, and the frames that a server writes.

Source: RFC 9113 sections 4 and 6.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import NamedTuple

from epp.wire.http2.errors import ConnectionFault, ErrorCode

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER_BYTES = 9
MAX_STREAM_ID = 2**31 - 1

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

_HEADER = struct.Struct(">HBBBI")  # length in two parts, type, flags, stream
_CODE = struct.Struct(">HBBBII")
_GOAWAY = struct.Struct(">HBBBIII")
unpack_header = _HEADER.unpack_from
unpack_u32 = struct.Struct(">I").unpack_from


# Flags, by frame type. They are plain numbers, since testing a bit of an IntFlag costs as much as reading a frame.
ACK = END_STREAM = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITIZED = 0x20


class Scope(Enum):
    """Where a frame of a type may be sent."""

    STREAM = "a stream"
    CONNECTION = "the connection"
    EITHER = "either"


class Rule(NamedTuple):
    """The requirements on a frame's header, which are checked before its payload is read. Units: bytes."""

    scope: Scope
    shortest: int = 0
    longest: int | None = None
    step: int = 1


RULES: Mapping[int, Rule] = {
    DATA: Rule(Scope.STREAM),
    HEADERS: Rule(Scope.STREAM),
    PRIORITY: Rule(Scope.STREAM),  # a wrong size only ends its stream, so Control checks it
    RST_STREAM: Rule(Scope.STREAM, 4, 4),
    SETTINGS: Rule(Scope.CONNECTION, step=6),
    PUSH_PROMISE: Rule(Scope.STREAM),
    PING: Rule(Scope.CONNECTION, 8, 8),
    GOAWAY: Rule(Scope.CONNECTION, 8),
    WINDOW_UPDATE: Rule(Scope.EITHER, 4, 4),
    CONTINUATION: Rule(Scope.STREAM),
}
NAMES = ("DATA", "HEADERS", "PRIORITY", "RST_STREAM", "SETTINGS", "PUSH_PROMISE", "PING", "GOAWAY", "WINDOW_UPDATE",
         "CONTINUATION")  # fmt: skip


def check(kind: int, stream_id: int, length: int) -> None:
    """Check a frame against the rule of its type; unknown types have none. Raises: ConnectionFault."""
    rule = RULES.get(kind)
    if rule is None:
        return
    if (rule.scope is Scope.STREAM and not stream_id) or (rule.scope is Scope.CONNECTION and stream_id):
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"{NAMES[kind]} on stream {stream_id}: not {rule.scope.value}")
    if length < rule.shortest or (rule.longest is not None and length > rule.longest) or length % rule.step:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"{NAMES[kind]} of {length} bytes")


def unpadded(payload: bytes) -> bytes:
    """Return the payload of a PADDED frame without its padding. Raises: ConnectionFault."""
    if not payload:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a padded frame has no room for its pad length")
    if payload[0] >= len(payload):
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"padding of {payload[0]} in {len(payload)} bytes")
    return payload[1 : len(payload) - payload[0]]


def header(length: int, kind: int, flags: int, stream_id: int) -> bytes:
    """Return a frame's nine-byte header."""
    return _HEADER.pack(length >> 8, length & 0xFF, kind, flags, stream_id)


def settings(values: Mapping[int, int]) -> bytes:
    """Return a SETTINGS frame."""
    payload = b"".join(struct.pack(">HI", key, value) for key, value in values.items())
    return header(len(payload), SETTINGS, 0, 0) + payload


SETTINGS_ACK = header(0, SETTINGS, ACK, 0)
_PING_ACK = header(8, PING, ACK, 0)


def ping(payload: bytes) -> bytes:
    """Return a PING of eight bytes."""
    return header(8, PING, 0, 0) + payload


def ping_ack(payload: bytes) -> bytes:
    """Return the answer to a PING."""
    return _PING_ACK + payload


def rst_stream(stream_id: int, code: int) -> bytes:
    """Return a RST_STREAM frame."""
    return _CODE.pack(0, 4, RST_STREAM, 0, stream_id, code)


def window_update(stream_id: int, increment: int) -> bytes:
    """Return a WINDOW_UPDATE frame."""
    return _CODE.pack(0, 4, WINDOW_UPDATE, 0, stream_id, increment)


def goaway(last_stream_id: int, code: int, debug: bytes = b"") -> bytes:
    """Return a GOAWAY frame."""
    length = 8 + len(debug)
    return _GOAWAY.pack(length >> 8, length & 0xFF, GOAWAY, 0, 0, last_stream_id, code) + debug


def header_block(stream_id: int, block: bytes, end_stream: bool, max_frame_bytes: int) -> bytes:
    """Return a HEADERS frame, followed by CONTINUATION frames if the block exceeds the peer's frame size."""
    flags = END_STREAM if end_stream else 0
    if len(block) <= max_frame_bytes:
        return _HEADER.pack(len(block) >> 8, len(block) & 0xFF, HEADERS, flags | END_HEADERS, stream_id) + block
    return b"".join(_split(stream_id, block, flags, max_frame_bytes))


def _split(stream_id: int, block: bytes, flags: int, size: int) -> Iterator[bytes]:
    for start in range(0, len(block), size):
        part = block[start : start + size]
        last = END_HEADERS if start + size >= len(block) else 0
        yield header(len(part), CONTINUATION if start else HEADERS, last if start else last | flags, stream_id) + part
