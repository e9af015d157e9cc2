"""HTTP/2 frames as bytes: what a client may send, and much that it may not. Source: RFC 9113, sections 4.1, 6 and 7."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from itertools import pairwise

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES = 9
DEFAULT_MAX_FRAME_BYTES = 1 << 14
DEFAULT_WINDOW_BYTES = 65_535
MAX_WINDOW_BYTES = (1 << 31) - 1
Field = tuple[bytes, bytes]


class Kind(IntEnum):
    """The types of frames."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Flag(IntFlag):
    """Frame flags; ACK and END_STREAM share a bit."""

    NONE = 0
    ACK = 1
    END_STREAM = 1
    END_HEADERS = 4
    PADDED = 8
    PRIORITY = 32


class Code(IntEnum):
    """Error codes of RST_STREAM and GOAWAY."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11


class Setting(IntEnum):
    """Identifiers in a SETTINGS frame."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame as received; ``kind`` stays a number since unknown types are legal."""

    kind: int
    flags: int
    stream: int
    payload: bytes

    def number(self, at: int = 0) -> int:
        """The 32-bit number at byte ``at`` of the payload."""
        return int.from_bytes(self.payload[at : at + 4])


def raw(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    """Any frame at all; ``stream`` may carry the reserved bit."""
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def data(stream: int, content: bytes = b"", *, end: bool = False, padding: int | None = None) -> bytes:
    """DATA; ``padding`` counts the zero bytes after the content."""
    flags = Flag.END_STREAM if end else Flag.NONE
    if padding is None:
        return raw(Kind.DATA, flags, stream, content)
    return raw(Kind.DATA, flags | Flag.PADDED, stream, bytes((padding,)) + content + bytes(padding))


def headers(stream: int, block: bytes, *, end: bool = False, complete: bool = True, flags: int = 0) -> bytes:
    """HEADERS; not ``complete`` leaves the block to CONTINUATION frames."""
    flags |= (Flag.END_STREAM if end else 0) | (Flag.END_HEADERS if complete else 0)
    return raw(Kind.HEADERS, flags, stream, block)


def continuation(stream: int, block: bytes, *, complete: bool = True) -> bytes:
    """CONTINUATION, by default the last."""
    return raw(Kind.CONTINUATION, Flag.END_HEADERS if complete else 0, stream, block)


def dependency(on: int, weight: int = 15, *, exclusive: bool = False) -> bytes:
    """The five bytes of a priority signal."""
    return (on | (exclusive << 31)).to_bytes(4) + bytes((weight,))


def priority(stream: int, on: int = 0, weight: int = 15, *, exclusive: bool = False) -> bytes:
    """Return a PRIORITY frame."""
    return raw(Kind.PRIORITY, 0, stream, dependency(on, weight, exclusive=exclusive))


def reset(stream: int, code: int = Code.CANCEL) -> bytes:
    """Return an RST_STREAM frame."""
    return raw(Kind.RST_STREAM, 0, stream, code.to_bytes(4))


def settings(*values: tuple[int, int]) -> bytes:
    """SETTINGS with the given identifiers and values, in order."""
    return raw(Kind.SETTINGS, payload=b"".join(key.to_bytes(2) + value.to_bytes(4) for key, value in values))


def settings_ack() -> bytes:
    """SETTINGS that acknowledges the server's."""
    return raw(Kind.SETTINGS, Flag.ACK)


def ping(opaque: bytes) -> bytes:
    """Return a PING frame."""
    return raw(Kind.PING, payload=opaque)


def goaway(code: int = Code.NO_ERROR, last_stream: int = 0, debug: bytes = b"") -> bytes:
    """Return a GOAWAY frame."""
    return raw(Kind.GOAWAY, payload=last_stream.to_bytes(4) + code.to_bytes(4) + debug)


def window_update(stream: int, increment: int) -> bytes:
    """WINDOW_UPDATE of a stream, or of the connection with stream 0."""
    return raw(Kind.WINDOW_UPDATE, 0, stream, increment.to_bytes(4))


def split(block: bytes, *cuts: int) -> Sequence[bytes]:
    """``block`` cut at the given places, in order."""
    edges = (0, *cuts, len(block))
    return [block[a:b] for a, b in pairwise(edges)]
