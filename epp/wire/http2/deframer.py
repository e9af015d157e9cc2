"""Cuts bytes into whole frames: it reads the preface and joins header blocks with their CONTINUATION frames.

Source: RFC 9113 sections 3.4, 4.1, 4.2, 6.2 and 6.10.
"""

from __future__ import annotations

from collections.abc import Iterator

from epp.wire.http2.errors import ConnectionFault, ErrorCode
from epp.wire.http2.floods import Flood
from epp.wire.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    HEADER_BYTES,
    HEADERS,
    PADDED,
    PREFACE,
    SETTINGS,
    check,
    unpack_header,
    unpadded,
)
from epp.wire.http2.limits import Limits
from epp.wire.http2.settings import DEFAULT_FRAME_BYTES

Frame = tuple[int, int, int, bytes]
"""Type, flags, stream id, payload. A HEADERS frame holds its whole block, unpadded, and ends it."""


class Deframer:
    """Keeps the bytes of incomplete frames, which are one frame and one header block at most."""

    __slots__ = ("_block", "_block_flags", "_block_id", "_buffer", "_continuations", "_greeted", "_limits", "_settled",
                 "_wanted")  # fmt: skip

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._buffer = bytearray()
        self._wanted = len(PREFACE)  # bytes in the buffer below which nothing new can be read
        self._greeted = False  # the preface was read
        self._settled = False  # and the SETTINGS frame that must follow it
        self._block: bytearray | None = None
        self._block_id = self._block_flags = self._continuations = 0

    @property
    def greeted(self) -> bool:
        """Whether the client's preface and first SETTINGS were read."""
        return self._settled

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that ``data`` completes. Raises: ConnectionFault, after the frames before the fault."""
        buffer = self._buffer
        if buffer:
            buffer += data
            if len(buffer) < self._wanted:
                return
            data = bytes(buffer)
            buffer.clear()
        position, end = 0, len(data)
        if not self._greeted:
            position = self._greet(data)
        largest = max(self._limits.max_frame_bytes, DEFAULT_FRAME_BYTES)
        self._wanted = HEADER_BYTES
        while end - position >= HEADER_BYTES and self._greeted:
            high, low, kind, flags, stream_id = unpack_header(data, position)
            length = high << 8 | low
            if length > largest:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {length} bytes; at most {largest}")
            stop = position + HEADER_BYTES + length
            if stop > end:
                self._wanted = stop - position
                break
            payload = data[position + HEADER_BYTES : stop]
            position = stop
            stream_id &= 0x7FFFFFFF
            if kind == DATA and self._block is None and self._settled and stream_id:
                yield DATA, flags, stream_id, payload
            elif frame := self._admit(kind, flags, stream_id, payload):
                yield frame
        if position < end:
            buffer += data[position:]

    def _greet(self, data: bytes) -> int:
        """Return the position of the first frame in ``data``; 0 while the preface is incomplete."""
        if data[: len(PREFACE)] != PREFACE[: len(data)]:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "this port speaks HTTP/2 with prior knowledge only")
        self._greeted = len(data) >= len(PREFACE)
        return len(PREFACE) if self._greeted else 0

    def _admit(self, kind: int, flags: int, stream_id: int, payload: bytes) -> Frame | None:
        """Return the frame if it is allowed here and complete; header blocks are gathered until their end."""
        if self._block is not None and (kind != CONTINUATION or stream_id != self._block_id):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"a frame of type {kind} inside a header block")
        if not self._settled:
            if kind != SETTINGS or flags & ACK:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
            self._settled = True
        check(kind, stream_id, len(payload))
        if kind == HEADERS:
            return self._headers(flags, stream_id, payload)
        if kind == CONTINUATION:
            return self._continuation(flags, stream_id, payload)
        return kind, flags, stream_id, payload

    def _headers(self, flags: int, stream_id: int, payload: bytes) -> Frame | None:
        if flags & PADDED:
            payload = unpadded(payload)
        if flags & END_HEADERS:
            return HEADERS, flags, stream_id, payload
        self._block, self._block_id, self._block_flags = bytearray(payload), stream_id, flags
        self._continuations = 0
        return None

    def _continuation(self, flags: int, stream_id: int, payload: bytes) -> Frame | None:
        if self._block is None:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without a header block")
        self._block += payload
        self._continuations += 1
        limits = self._limits
        if len(self._block) > limits.max_header_block_bytes:
            reason = f"a header block of more than {limits.max_header_block_bytes} bytes"
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, reason, Flood.HEADER_BOMB)
        if self._continuations > limits.max_continuations:
            reason = f"more than {limits.max_continuations} CONTINUATION frames in a header block"
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, reason, Flood.CONTINUATIONS)
        if not flags & END_HEADERS:
            return None
        whole, self._block = bytes(self._block), None
        return HEADERS, self._block_flags | END_HEADERS, stream_id, whole
