"""The receiving half of a connection: requests, their bodies and ends, and the client's right to send more.

Source: RFC 9113 sections 5.2, 6.1, 6.2, 6.4, 6.9 and 8.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from epp.wire.http2 import frames
from epp.wire.http2.buckets import Buckets
from epp.wire.http2.compression import HeaderReader
from epp.wire.http2.counters import Counters
from epp.wire.http2.errors import ConnectionFault, ErrorCode, Malformed, StreamFault
from epp.wire.http2.events import Event, Opened, Received
from epp.wire.http2.fields import Field, block, check_trailers
from epp.wire.http2.floods import Flood
from epp.wire.http2.frames import END_STREAM, MAX_STREAM_ID, PADDED, PRIORITIZED, unpack_u32
from epp.wire.http2.limits import Limits
from epp.wire.http2.outbound import Outbound
from epp.wire.http2.streams import Closing, Stream, StreamTable
from epp.wire.http2.windows import ReceiveWindow

Head = TypeVar("Head")
ADDRESS_FACTOR = 3
"""How many streams an address may have for each place that stays free: alone, three quarters of ``max_streams``."""
_BYTES_PER_CHARGE = 64
_TOO_LARGE = block((b":status", b"431"), (b"content-length", b"0"))


class Inbound(Generic[Head]):
    """Reads the frames of requests; its methods take the flags, stream id and payload of one frame.

    ``emit`` receives the events, ``abort`` ends a stream, and ``stream_window`` makes a new stream's receive window.
    Raises: every method, ConnectionFault or StreamFault; events emitted before remain valid. Owned by the Connection.
    """

    __slots__ = ("_abort", "_buckets", "_counters", "_emit", "_limits", "_out", "_reader", "_stream_window", "_streams",
                 "_window")  # fmt: skip

    def __init__(
        self,
        limits: Limits,
        counters: Counters,
        buckets: Buckets,
        streams: StreamTable,
        out: Outbound,
        reader: HeaderReader[Head],
        *,
        window: ReceiveWindow,
        stream_window: Callable[[], ReceiveWindow],
        emit: Callable[[Event[Head]], None],
        abort: Callable[[Stream, Closing, int], None],
    ) -> None:
        self._limits = limits
        self._counters = counters
        self._buckets = buckets
        self._streams = streams
        self._out = out
        self._reader = reader
        self._window = window
        self._stream_window = stream_window
        self._emit = emit
        self._abort = abort

    def on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Take in a piece of a request's body, within both windows and its content-length."""
        length = len(payload)
        window = self._window
        window.consumed += length  # inline, here and below, which saves a call for each frame
        window.left -= length
        if window.left < 0:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "DATA beyond the connection's window")
        if flags & PADDED:
            payload = frames.unpadded(payload)
        stream = self._streams.open.get(stream_id)
        if stream is None:
            self._streams.check_late(stream_id)
            if not payload and not flags & END_STREAM:
                self._buckets.charge(Flood.EMPTY_DATA)
            return
        if stream.remote_ended:
            raise StreamFault(stream_id, ErrorCode.STREAM_CLOSED, "DATA after END_STREAM")
        receiving = stream.receiving
        receiving.consumed += length
        receiving.left -= length
        if length and receiving.left < 0:
            raise StreamFault(stream_id, ErrorCode.FLOW_CONTROL_ERROR, "DATA beyond the stream's window")
        if stream.content_left is not None:
            stream.content_left -= len(payload)
            if stream.content_left < 0:
                raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, "the body is longer than its content-length")
        if flags & END_STREAM:
            self._end_request(stream)
        else:
            if not payload:
                self._buckets.charge(Flood.EMPTY_DATA)
            if receiving.consumed * 2 >= receiving.size:
                self._out.grant(stream)
        self._emit(Received(stream, payload, stream.remote_ended))

    def _end_request(self, stream: Stream) -> None:
        if stream.content_left:
            raise StreamFault(stream.id, ErrorCode.PROTOCOL_ERROR, "the body is shorter than its content-length")
        stream.remote_ended = True

    def on_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        """Open a stream, or end one with trailers."""
        parent = None
        if flags & PRIORITIZED:
            if len(payload) < 5:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "HEADERS without room for its priority")
            parent = unpack_u32(payload)[0] & MAX_STREAM_ID
            payload = payload[5:]
        stream = self._streams.open.get(stream_id)
        ended = bool(flags & END_STREAM)
        if stream is None and self._streams.is_idle(stream_id):
            self._on_request(stream_id, payload, ended)
        else:
            if stream is None:
                self._buckets.charge(Flood.UNKNOWN_FRAMES, 1 + len(payload) // _BYTES_PER_CHARGE)
            section = self._reader.fields(payload)  # even if it is not needed: the dynamic table must stay in step
            if stream is None:
                self._streams.check_late(stream_id)
            else:
                self._on_trailers(stream, section, ended)
        if parent == stream_id:
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, "a stream cannot depend on itself")

    def _on_request(self, stream_id: int, header_block: bytes, ended: bool) -> None:
        served = self._streams.admit(stream_id)
        try:
            head, meaning = self._reader.request(header_block)
        except Malformed as error:
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, str(error)) from None
        if not served:
            self._streams.close(stream_id, Closing.RESET_BY_US)
            return
        limits, own = self._limits, len(self._streams.open)
        if own >= limits.max_concurrent_streams:
            self._buckets.charge(Flood.RESETS)
            self._refuse(stream_id)
            return
        free = limits.max_streams - self._counters.streams
        if own >= free or self._streams.places.taken >= ADDRESS_FACTOR * free:
            self._refuse(stream_id)  # this is not charged, since other connections may be the cause
            return
        stream = Stream(stream_id, self._stream_window(), head.content_length, self._out.now)
        self._streams.add(stream)
        if ended:
            self._end_request(stream)
        if head.size_bytes > self._limits.max_header_list_bytes:
            self._buckets.charge(Flood.HEADER_BOMB)
            self._out.headers(stream, _TOO_LARGE, end_stream=True)
        else:
            self._emit(Opened(stream, meaning, ended))

    def _refuse(self, stream_id: int) -> None:
        self._counters.refused_streams += 1
        self._out.control(frames.rst_stream(stream_id, ErrorCode.REFUSED_STREAM))
        self._streams.close(stream_id, Closing.RESET_BY_US)

    def _on_trailers(self, stream: Stream, section: Sequence[Field], ended: bool) -> None:
        if stream.remote_ended:
            raise StreamFault(stream.id, ErrorCode.STREAM_CLOSED, "HEADERS after END_STREAM")
        try:
            check_trailers(section)
        except Malformed as error:
            raise StreamFault(stream.id, ErrorCode.PROTOCOL_ERROR, str(error)) from None
        if not ended:
            raise StreamFault(stream.id, ErrorCode.PROTOCOL_ERROR, "trailers without END_STREAM")
        self._end_request(stream)
        self._emit(Received(stream, b"", True))

    def on_rst_stream(self, _flags: int, stream_id: int, payload: bytes) -> None:
        """Drop a stream; the reset is charged if we had not answered yet, since the work was then useless."""
        stream = self._streams.open.get(stream_id)
        if stream is None:
            self._streams.check_not_idle(stream_id)  # otherwise it crossed the stream's end on its way
            return
        self._counters.resets_received += 1
        if stream.answered:
            self._buckets.give(Flood.RESETS)
        else:
            self._counters.resets_unanswered += 1
        self._abort(stream, Closing.RESET_BY_PEER, unpack_u32(payload)[0])
        if not stream.answered:
            self._buckets.charge(Flood.RESETS)
