"""The server's side of one HTTP/2 connection, without I/O, clock or tasks.

Received bytes become events, and calls of its methods become bytes to send. Laws: ``receive`` never raises, whatever
the bytes are; the same bytes in any pieces give the same events; every ``Opened`` has exactly one end, which is our
``finish`` or ``reset``, or ``Aborted``; a closed stream is in no table.

Source: RFC 9113.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from epp.wire.http2 import frames
from epp.wire.http2.buckets import Buckets
from epp.wire.http2.compression import HeaderReader
from epp.wire.http2.control import DRAIN_PING, Control
from epp.wire.http2.counters import Counters
from epp.wire.http2.deframer import Deframer
from epp.wire.http2.errors import ConnectionFault, ErrorCode, StreamFault
from epp.wire.http2.events import Aborted, Event
from epp.wire.http2.fields import HttpHead
from epp.wire.http2.floods import Flood
from epp.wire.http2.frames import DATA, MAX_STREAM_ID
from epp.wire.http2.inbound import Inbound
from epp.wire.http2.limits import Limits
from epp.wire.http2.outbound import Outbound
from epp.wire.http2.settings import DEFAULT_WINDOW_BYTES, offered
from epp.wire.http2.share import Share
from epp.wire.http2.streams import Closing, Places, Stream, StreamTable
from epp.wire.http2.windows import ReceiveWindow

Head = TypeVar("Head")
_SILENT_BYTES, _FRAME_BYTES = 4096, 64
"""After how many bytes without an event ``receive`` yields None, and how many bytes each frame counts for besides its
payload."""


class Connection(Generic[Head]):
    """The protocol's state, from our SETTINGS to the last GOAWAY. Owned by one Session.

    ``interpret`` turns a request's head into what the layer above uses; it is a pure function, since it is cached.
    """

    __slots__ = ("_buckets", "_counters", "_deframer", "_events", "_handlers", "_limits", "_on_data", "_out",
                 "_streams", "_window", "closed", "fault", "headers_read", "share")  # fmt: skip

    def __init__(
        self, limits: Limits, counters: Counters, interpret: Callable[[HttpHead], Head], places: Places | None = None
    ) -> None:
        """``places`` counts the streams of all connections from the client's address."""
        self.closed = False
        """Whether the last GOAWAY was sent or the transport was lost, after which nothing is read."""
        self.fault: ConnectionFault | None = None
        """The fault that ended the connection, if there was one."""
        self._limits = limits
        self._counters = counters
        self._events: deque[Event[Head]] = deque()
        self._deframer = Deframer(limits)
        self._buckets = Buckets(limits.floods)
        self._streams = StreamTable(counters, places or Places())
        size = max(limits.connection_window_bytes, DEFAULT_WINDOW_BYTES)
        self._window = ReceiveWindow(size, size)
        self.share = Share(limits, counters)
        self._out = Outbound(self._ended, limits, self.share)
        self.headers_read = HeaderReader(limits.max_header_block_bytes, interpret)
        control = Control(self._streams, self._out, self._buckets, limits.stream_window_bytes, self.settle)
        inbound = Inbound(
            limits,
            counters,
            self._buckets,
            self._streams,
            self._out,
            self.headers_read,
            window=self._window,
            stream_window=control.stream_window,
            emit=self._events.append,
            abort=self._abort,
        )
        self._on_data = inbound.on_data
        self._handlers: Mapping[int, Callable[[int, int, bytes], None]] = {
            frames.HEADERS: inbound.on_headers,
            frames.PRIORITY: control.on_priority,
            frames.RST_STREAM: inbound.on_rst_stream,
            frames.SETTINGS: control.on_settings,
            frames.PUSH_PROMISE: control.on_push_promise,
            frames.PING: control.on_ping,
            frames.GOAWAY: control.on_goaway,
            frames.WINDOW_UPDATE: control.on_window_update,
        }
        self._out.control(frames.settings(offered(limits)))
        if size > DEFAULT_WINDOW_BYTES:
            self._out.control(frames.window_update(0, size - DEFAULT_WINDOW_BYTES))

    @property
    def greeted(self) -> bool:
        """Whether the client has sent its preface and first SETTINGS."""
        return self._deframer.greeted

    @property
    def streams(self) -> Mapping[int, Stream]:
        """The open and half-closed streams."""
        return self._streams.open

    @property
    def drained(self) -> bool:
        """Whether a drain is complete: no stream is open, and no new one is accepted."""
        return self._streams.accepts_to < MAX_STREAM_ID and not self._streams.open

    # Bytes in

    def receive(self, data: bytes, now: float) -> Iterator[Event[Head] | None]:
        """Yield the events of ``data``, each before the next frame is read. The caller must exhaust the iterator.

        The meaning of a frame thus never depends on which frames were read together with it. After many frames
        without an event, None is yielded, so that the caller can end the connection's turn.
        Units: ``now`` is any clock that does not go back, in seconds.
        """
        if self.closed:
            return
        self._out.now = self._buckets.now = now
        self._counters.bytes_received += len(data)
        events = self._events
        silent = 0
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
                if not events:
                    silent += _FRAME_BYTES + len(payload)
                    if silent > _SILENT_BYTES:
                        silent = 0
                        yield None
                while events:
                    yield events.popleft()
                if self.closed:
                    return
        except ConnectionFault as fault:
            self._terminate(fault)
            while events:
                yield events.popleft()

    def tick(self, now: float) -> None:
        """Set the time to ``now``, which is allowed while ``receive`` is in progress."""
        self._out.now = self._buckets.now = now

    # Calls in

    def headers(self, stream: Stream, header_block: bytes) -> None:
        """Send a response's header block, unless the stream is closed."""
        if not stream.closed:
            self._out.headers(stream, header_block)

    def send(self, stream: Stream, prefix: bytes, body: bytes) -> bool:
        """Send or queue ``prefix + body``; False when the bounds on unsent bytes forbid it."""
        return stream.closed or stream.finishing or self._out.data(stream, prefix, body)

    def respond(self, stream: Stream, header_block: bytes, body: bytes) -> None:
        """Send a whole response that is not gRPC."""
        self._out.headers(stream, header_block, end_stream=not body)
        if body:
            self._out.last_data(stream, body)

    def finish(self, stream: Stream, trailers: bytes) -> None:
        """End a response with its trailers, after the queued bytes."""
        if not stream.closed and not stream.finishing:
            self._out.finish(stream, trailers)

    def reset(self, stream: Stream, code: ErrorCode) -> None:
        """Reset a stream; no event follows."""
        if not stream.closed:
            self._counters.resets_sent += 1
            self._out.control(frames.rst_stream(stream.id, code))
            self._close(stream, Closing.RESET_BY_US)

    def pause(self, paused: bool) -> None:
        """Stop or resume sending DATA, as the transport's buffer fills and empties."""
        self._out.paused = paused

    def output(self, now: float) -> bytes:
        """Return what to write now; call again until it is empty or the transport is full."""
        out = self._out
        out.now = now
        window = self._window
        if (
            window.consumed * 2 >= window.size  # rarely true, so it comes first
            and not self.closed
            and out.queued_bytes < self._limits.connection_high_water_bytes
            and not self.share.forbids()
            and (increment := window.grant())
        ):
            out.control(frames.window_update(0, increment))
        data = out.take()
        self._counters.bytes_sent += len(data)
        return data

    # Ends

    def drain(self) -> None:
        """Ask the client to open no more streams; those that it opens in the meantime are still served."""
        if not self.closed:
            self._out.control(frames.goaway(MAX_STREAM_ID, ErrorCode.NO_ERROR))
            self._out.control(frames.ping(DRAIN_PING))

    def settle(self) -> None:
        """End a drain: streams above the last one seen are not served any more."""
        if not self.closed and self._streams.accepts_to == MAX_STREAM_ID:
            self._streams.accepts_to = self._streams.last_id
            self._out.control(frames.goaway(self._streams.last_id, ErrorCode.NO_ERROR))

    def end(self, fault: ConnectionFault | None = None) -> list[Event[Head]]:
        """Abort every stream; with a ``fault`` the transport still works, and a GOAWAY carries the reason."""
        if not self.closed:
            if fault:
                self._terminate(fault)
            else:
                self._abort_all(ErrorCode.CANCEL)
        return self._take_events()

    def drop_stalled(self, now: float) -> list[Event[Head]]:
        """Reset the streams whose answers have waited too long for the client's window."""
        self._buckets.now = now
        oldest = now - self._limits.stall_s
        try:
            for stream in [s for s in self.streams.values() if s.queued_bytes and s.blocked_since <= oldest]:
                self._out.control(frames.rst_stream(stream.id, ErrorCode.CANCEL))
                self._counters.resets_sent += 1
                self._abort(stream, Closing.RESET_BY_US, ErrorCode.CANCEL)
                self._buckets.charge(Flood.STALLED)
        except ConnectionFault as fault:
            self._terminate(fault)
        return self._take_events()

    def _take_events(self) -> list[Event[Head]]:
        taken = list(self._events)
        self._events.clear()
        return taken

    def accuse(self, flood: Flood) -> None:
        """Charge for work of the layer above, which may end the connection."""
        try:
            self._buckets.charge(flood)
        except ConnectionFault as fault:
            self._terminate(fault)

    def absolve(self, flood: Flood) -> None:
        """Take a charge back, because the work turned out to be useful."""
        self._buckets.give(flood)

    def _terminate(self, fault: ConnectionFault) -> None:
        self.fault = fault
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
        """Close a stream after our last frame, and ask a client that is still sending to stop (section 8.1)."""
        self._buckets.give(Flood.RESETS)
        if not stream.remote_ended:
            self._out.control(frames.rst_stream(stream.id, ErrorCode.NO_ERROR))
        self._close(stream, Closing.ENDED if stream.remote_ended else Closing.RESET_BY_US)

    def _close(self, stream: Stream, how: Closing) -> None:
        self._streams.close(stream.id, how)
        if stream.queued_bytes:
            self._out.forget(stream)
