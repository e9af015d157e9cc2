"""One HTTP/2 connection, the server's side: bytes in, events out; calls in, bytes out. No I/O, no clock, no tasks.

Laws: ``receive`` never raises, whatever the bytes; the same bytes in any pieces give the same events; every ``Opened``
has exactly one end: our ``finish`` or ``reset``, or ``Aborted``. A closed stream is in no table.

Source: RFC 9113.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from epp.wire import frames
from epp.wire.buckets import Buckets
from epp.wire.compression import HeaderReader
from epp.wire.control import DRAIN_PING, Control
from epp.wire.counters import Counters
from epp.wire.deframer import Deframer
from epp.wire.errors import ConnectionFault, ErrorCode, Malformed, StreamFault
from epp.wire.events import Aborted, Event, Opened, Received
from epp.wire.fields import Field, HttpHead, block, check_trailers
from epp.wire.floods import Flood
from epp.wire.flow import ReceiveWindow
from epp.wire.frames import DATA, END_STREAM, MAX_STREAM_ID, PADDED, Flag, unpack_u32
from epp.wire.limits import Limits
from epp.wire.outbound import Outbound
from epp.wire.settings import DEFAULT_FRAME_BYTES, DEFAULT_WINDOW_BYTES, Setting
from epp.wire.stream import Closing, Stream
from epp.wire.streams import StreamTable

Head = TypeVar("Head")
_TOO_LARGE = block((b":status", b"431"), (b"content-length", b"0"))


class Connection(Generic[Head]):
    """The protocol's state, from our SETTINGS to the last GOAWAY. Owned by one Session.

    ``interpret`` is what the layer above makes of a request's head, a pure function (HeaderReader says why).
    """

    __slots__ = ("_buckets", "_counters", "_deframer", "_events", "_handlers", "_limits", "_out", "_reader",
                 "_receiving", "_streams", "_window", "closed")  # fmt: skip

    def __init__(self, limits: Limits, counters: Counters, interpret: Callable[[HttpHead], Head]) -> None:
        self.closed = False
        """Whether the last GOAWAY is out, or the transport lost: nothing is read any more."""
        self._limits = limits
        self._counters = counters
        self._events: list[Event[Head]] = []
        self._deframer = Deframer(limits)
        self._reader = HeaderReader(limits.max_header_block_bytes, interpret)
        self._buckets = Buckets(limits.floods)
        self._streams = StreamTable()
        self._out = Outbound(self._ended, self._grant)
        control = Control(self._streams, self._out, self._buckets, limits.stream_window_bytes, self.settle)
        self._window = control.stream_window
        self._handlers: Mapping[int, Callable[[int, int, bytes], None]] = {
            frames.HEADERS: self._on_headers,
            frames.PRIORITY: control.on_priority,
            frames.RST_STREAM: self._on_rst_stream,
            frames.SETTINGS: control.on_settings,
            frames.PUSH_PROMISE: control.on_push_promise,
            frames.PING: control.on_ping,
            frames.GOAWAY: control.on_goaway,
            frames.WINDOW_UPDATE: control.on_window_update,
        }
        size = max(limits.connection_window_bytes, DEFAULT_WINDOW_BYTES)
        self._receiving = ReceiveWindow(size, size)
        self._greet(size)

    def _greet(self, window_bytes: int) -> None:
        limits = self._limits
        ours: dict[int, int] = {
            Setting.MAX_CONCURRENT_STREAMS: limits.max_concurrent_streams,
            Setting.INITIAL_WINDOW_SIZE: limits.stream_window_bytes,
            Setting.MAX_FRAME_SIZE: max(limits.max_frame_bytes, DEFAULT_FRAME_BYTES),
            Setting.MAX_HEADER_LIST_SIZE: limits.max_header_list_bytes,
        }
        self._out.control(frames.settings(ours))
        if window_bytes > DEFAULT_WINDOW_BYTES:
            self._out.control(frames.window_update(0, window_bytes - DEFAULT_WINDOW_BYTES))

    @property
    def greeted(self) -> bool:
        """Whether the client has shown that it speaks HTTP/2."""
        return self._deframer.greeted

    @property
    def streams(self) -> Mapping[int, Stream]:
        """The open and half-closed streams."""
        return self._streams.open

    @property
    def drained(self) -> bool:
        """Whether a drain has come to its end: no stream is open and none can come."""
        return self._streams.accepts_to < MAX_STREAM_ID and not self._streams.open

    # Bytes in

    def receive(self, data: bytes, now: float) -> Iterator[Event[Head]]:
        """Yield what ``data`` means, each event before the next frame is looked at; to be taken to its end.

        So what a frame means never depends on which frames were read together with it.
        Units: ``now`` is any clock that does not go back, in seconds.
        """
        if self.closed:
            return
        self._out.now = self._buckets.now = now
        self._counters.bytes_received += len(data)
        events = self._events = []
        try:
            for kind, flags, stream_id, payload in self._deframer.feed(data):
                try:
                    if kind == DATA:
                        self._on_data(flags, stream_id, payload)
                    elif handler := self._handlers.get(kind):
                        handler(flags, stream_id, payload)
                    else:
                        self._buckets.charge(Flood.UNKNOWN_FRAMES)
                except StreamFault as fault:
                    self._fail_stream(fault)
                if events:
                    yield from events
                    events.clear()
                    if self.closed:
                        return
        except ConnectionFault as fault:
            self._terminate(fault)
            yield from events

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        length = len(payload)
        if not self._receiving.spend(length):
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "DATA beyond the connection's window")
        if flags & PADDED:
            payload = frames.unpadded(payload)
        stream = self._streams.open.get(stream_id)
        if stream is None:
            self._streams.check_late(stream_id)
            return
        if stream.remote_ended:
            raise StreamFault(stream_id, ErrorCode.STREAM_CLOSED, "DATA after END_STREAM")
        if length and not stream.receiving.spend(length):
            raise StreamFault(stream_id, ErrorCode.FLOW_CONTROL_ERROR, "DATA beyond the stream's window")
        if stream.content_left is not None:
            stream.content_left -= len(payload)
        if flags & END_STREAM:
            self._end_request(stream)
        else:
            if not payload:
                self._buckets.charge(Flood.EMPTY_DATA)
            self._check_content(stream, stream.content_left)
            self._grant(stream)
        self._events.append(Received(stream, payload, stream.remote_ended))

    def _end_request(self, stream: Stream) -> None:
        if stream.content_left:
            raise StreamFault(stream.id, ErrorCode.PROTOCOL_ERROR, "the body's length is not its content-length")
        stream.remote_ended = True

    def _check_content(self, stream: Stream, left: int | None) -> None:
        if left is not None and left < 0:
            raise StreamFault(stream.id, ErrorCode.PROTOCOL_ERROR, "the body is longer than its content-length")

    def _grant(self, stream: Stream) -> None:
        """Let the client send more, unless it does not read what we send."""
        if (
            stream.receiving.consumed * 2 >= stream.receiving.size
            and stream.queued_bytes < self._limits.send_high_water_bytes
            and not stream.remote_ended
            and not stream.finishing
            and (increment := stream.receiving.grant())
        ):
            self._out.control(frames.window_update(stream.id, increment))

    def _on_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        parent = None
        if flags & Flag.PRIORITY:
            if len(payload) < 5:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "HEADERS without room for its priority")
            parent = unpack_u32(payload)[0] & MAX_STREAM_ID
            payload = payload[5:]
        stream = self._streams.open.get(stream_id)
        ended = bool(flags & END_STREAM)
        if stream is None and self._streams.is_idle(stream_id):
            self._on_request(stream_id, payload, ended)
        else:
            section = self._reader.fields(payload)  # wanted or not: the dynamic table must stay in step
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
        if len(self._streams.open) >= self._limits.max_concurrent_streams:
            self._refuse(stream_id)
            return
        stream = Stream(stream_id, self._out.initial_window, self._window(), head.content_length)
        self._streams.open[stream_id] = stream
        self._counters.streams += 1
        self._counters.streams_total += 1
        if ended:
            self._end_request(stream)
        if head.size_bytes > self._limits.max_header_list_bytes:
            self._out.headers(stream, _TOO_LARGE, end_stream=True)
        else:
            self._events.append(Opened(stream, meaning, ended))

    def _refuse(self, stream_id: int) -> None:
        self._buckets.charge(Flood.RESETS)
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
        self._events.append(Received(stream, b"", True))

    def _on_rst_stream(self, _flags: int, stream_id: int, payload: bytes) -> None:
        stream = self._streams.open.get(stream_id)
        if stream is None:
            self._streams.check_not_idle(stream_id)  # else it crossed the stream's end
            return
        self._counters.resets_received += 1
        if stream.answered:
            self._buckets.give(Flood.RESETS)
        else:
            self._counters.resets_unanswered += 1
        self._abort(stream, Closing.RESET_BY_PEER, unpack_u32(payload)[0])
        if not stream.answered:
            self._buckets.charge(Flood.RESETS)

    # Calls in

    def headers(self, stream: Stream, header_block: bytes) -> None:
        """Send a response's header block."""
        if not stream.closed:
            self._out.headers(stream, header_block)

    def send(self, stream: Stream, prefix: bytes, body: bytes) -> bool:
        """Send or queue ``prefix + body``; False when the bounds on unsent bytes forbid it."""
        if stream.closed or stream.finishing:
            return True
        limits, length = self._limits, len(body)
        if (
            stream.queued_bytes + length > limits.max_stream_queue_bytes
            or self._out.queued_bytes + length > limits.max_connection_queue_bytes
        ):
            return False
        self._out.data(stream, prefix, body)
        return True

    def respond(self, stream: Stream, header_block: bytes, body: bytes) -> None:
        """Answer with a whole plain response; ``body`` is not empty."""
        self._out.headers(stream, header_block)
        self._out.last_data(stream, body)

    def finish(self, stream: Stream, trailers: bytes) -> None:
        """End a response with its trailers, after what is queued."""
        if not stream.closed and not stream.finishing:
            self._out.finish(stream, trailers)

    def reset(self, stream: Stream, code: ErrorCode) -> None:
        """Give a stream up; no event follows."""
        if not stream.closed:
            self._counters.resets_sent += 1
            self._out.control(frames.rst_stream(stream.id, code))
            self._close(stream, Closing.RESET_BY_US)

    def pause(self, paused: bool) -> None:
        """Hold DATA back while the transport is full."""
        self._out.paused = paused

    def output(self, now: float) -> bytes:
        """Return what to write now; call again until it is empty or the transport is full."""
        out = self._out
        out.now = now
        reads = not self.closed and out.queued_bytes < self._limits.max_connection_queue_bytes
        if reads and (increment := self._receiving.grant()):
            out.control(frames.window_update(0, increment))
        data = out.take()
        self._counters.bytes_sent += len(data)
        return data

    # Ends

    def drain(self) -> None:
        """Tell the client to open no more streams; those that it opened meanwhile are still served."""
        if not self.closed:
            self._out.control(frames.goaway(MAX_STREAM_ID, ErrorCode.NO_ERROR))
            self._out.control(frames.ping(DRAIN_PING))

    def settle(self) -> None:
        """End a drain: streams above the last one seen are not served any more."""
        if not self.closed and self._streams.accepts_to == MAX_STREAM_ID:
            self._streams.accepts_to = self._streams.last_id
            self._out.control(frames.goaway(self._streams.last_id, ErrorCode.NO_ERROR))

    def end(self, fault: ConnectionFault | None = None) -> list[Event[Head]]:
        """Abort every stream: the transport was lost, or is to be closed, and then GOAWAY says why."""
        self._events = []
        if not self.closed:
            if fault:
                self._terminate(fault)
            else:
                self._abort_all(ErrorCode.CANCEL)
        return self._events

    def drop_stalled(self, now: float) -> list[Event[Head]]:
        """Reset the streams whose answers have waited too long for the client's windows."""
        self._buckets.now = now
        self._events = []
        oldest = now - self._limits.stall_s
        try:
            for stream in [s for s in self.streams.values() if s.queued_bytes and s.blocked_since <= oldest]:
                self._out.control(frames.rst_stream(stream.id, ErrorCode.CANCEL))
                self._counters.resets_sent += 1
                self._abort(stream, Closing.RESET_BY_US, ErrorCode.CANCEL)
                self._buckets.charge(Flood.STALLED)
        except ConnectionFault as fault:
            self._terminate(fault)
        return self._events

    def _terminate(self, fault: ConnectionFault) -> None:
        self._counters.connection_faults += fault.code is not ErrorCode.NO_ERROR
        if fault.flood:
            self._counters.floods[fault.flood] += 1
        self._out.control(frames.goaway(self._streams.last_id, fault.code, str(fault).encode()[:256]))
        self._abort_all(fault.code)

    def _abort_all(self, code: int) -> None:
        self.closed = True
        for stream in list(self._streams.open.values()):
            self._abort(stream, Closing.RESET_BY_US, code)

    def _abort(self, stream: Stream, how: Closing, code: int) -> None:
        self._close(stream, how)
        self._events.append(Aborted(stream, code))

    def _fail_stream(self, fault: StreamFault) -> None:
        if self._streams.is_idle(fault.stream_id):
            raise ConnectionFault(fault.code, str(fault)) from fault
        self._buckets.charge(Flood.STREAM_ERRORS)
        self._counters.resets_sent += 1
        self._out.control(frames.rst_stream(fault.stream_id, fault.code))
        if stream := self._streams.open.get(fault.stream_id):
            self._abort(stream, Closing.RESET_BY_US, fault.code)
        else:
            self._streams.close(fault.stream_id, Closing.RESET_BY_US)

    def _ended(self, stream: Stream) -> None:
        """Our last frame is out: forget the stream, and tell a client that is still sending to stop (section 8.1)."""
        self._buckets.give(Flood.RESETS)
        if not stream.remote_ended:
            self._out.control(frames.rst_stream(stream.id, ErrorCode.NO_ERROR))
        self._close(stream, Closing.ENDED if stream.remote_ended else Closing.RESET_BY_US)

    def _close(self, stream: Stream, how: Closing) -> None:
        self._streams.close(stream.id, how)
        self._counters.streams -= 1
        if stream.queued_bytes:
            self._out.forget(stream)
