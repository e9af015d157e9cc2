"""Frames that belong to no request: SETTINGS, PING, WINDOW_UPDATE, GOAWAY, PRIORITY, and the refused PUSH_PROMISE.

Source: RFC 9113 sections 6.3, 6.5 to 6.9.
"""

from __future__ import annotations

from collections.abc import Callable

from epp.wire.http2 import frames, settings
from epp.wire.http2.buckets import Buckets
from epp.wire.http2.errors import ConnectionFault, ErrorCode, StreamFault
from epp.wire.http2.floods import Flood
from epp.wire.http2.frames import ACK, MAX_STREAM_ID, unpack_u32
from epp.wire.http2.outbound import Outbound
from epp.wire.http2.settings import DEFAULT_WINDOW_BYTES, Setting
from epp.wire.http2.streams import StreamTable
from epp.wire.http2.windows import ReceiveWindow

DRAIN_PING = b"draining"
STREAMS_PER_CHARGE = 256
"""How many streams a SETTINGS frame makes us visit for the charge of another frame, which takes 0.02 ms of a core."""


class Control:
    """Answers a connection's control frames. ``drained`` is called when the client has received our first GOAWAY."""

    __slots__ = ("_acknowledged", "_buckets", "_drained", "_out", "_streams", "_window_bytes")

    def __init__(
        self, streams: StreamTable, out: Outbound, buckets: Buckets, window_bytes: int, drained: Callable[[], None]
    ) -> None:
        self._streams = streams
        self._out = out
        self._buckets = buckets
        self._window_bytes = window_bytes
        self._drained = drained
        self._acknowledged = False  # whether the client has applied our SETTINGS

    def stream_window(self) -> ReceiveWindow:
        """Return a new stream's receive window; the client may use the default until it acknowledges our SETTINGS."""
        left = self._window_bytes if self._acknowledged else max(self._window_bytes, DEFAULT_WINDOW_BYTES)
        return ReceiveWindow(self._window_bytes, left)

    def on_settings(self, flags: int, _stream_id: int, payload: bytes) -> None:
        """Apply the client's settings, all or none, and acknowledge them."""
        self._buckets.charge(Flood.SETTINGS)
        if flags & ACK:
            if payload:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"SETTINGS ACK of {len(payload)} bytes")
            self._on_acknowledged()
            return
        values = settings.parse(payload)
        if Setting.MAX_FRAME_SIZE in values:
            self._out.max_frame_bytes = values[Setting.MAX_FRAME_SIZE]
        if Setting.INITIAL_WINDOW_SIZE in values:
            size = values[Setting.INITIAL_WINDOW_SIZE]
            looked_at = self._out.set_initial_window(size, self._streams.open.values())
            self._buckets.charge(Flood.SETTINGS, looked_at // STREAMS_PER_CHARGE)
        self._out.control(frames.SETTINGS_ACK)

    def _on_acknowledged(self) -> None:
        if not self._acknowledged:
            self._acknowledged = True
            surplus = max(0, DEFAULT_WINDOW_BYTES - self._window_bytes)
            for stream in self._streams.open.values():
                stream.receiving.left -= surplus

    def on_ping(self, flags: int, _stream_id: int, payload: bytes) -> None:
        """Answer a PING; the client's answer to our own PING completes a drain."""
        self._buckets.charge(Flood.PINGS)
        if not flags & ACK:
            self._out.control(frames.ping_ack(payload))
        elif payload == DRAIN_PING:
            self._drained()

    def on_window_update(self, _flags: int, stream_id: int, payload: bytes) -> None:
        """Widen one of the windows that limit our DATA."""
        self._buckets.give(Flood.WINDOW_UPDATES, 2 * self._out.useful_frames)  # each uses two windows
        self._out.useful_frames = 0
        self._buckets.charge(Flood.WINDOW_UPDATES)
        increment = unpack_u32(payload)[0] & MAX_STREAM_ID
        if not stream_id:
            if not increment:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0 bytes")
            self._out.widen(increment)
        elif stream := self._streams.open.get(stream_id):
            if not increment:
                raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0 bytes")
            self._out.widen_stream(stream, increment)
        else:
            self._streams.check_not_idle(stream_id)  # otherwise it crossed the stream's end on its way

    def on_priority(self, _flags: int, stream_id: int, payload: bytes) -> None:
        """Check a priority, which RFC 9113 deprecates; it has no effect, since streams take turns."""
        self._buckets.charge(Flood.PRIORITIES)
        if len(payload) != 5:
            raise StreamFault(stream_id, ErrorCode.FRAME_SIZE_ERROR, f"PRIORITY of {len(payload)} bytes")
        if unpack_u32(payload)[0] & MAX_STREAM_ID == stream_id:
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, "a stream cannot depend on itself")

    def on_goaway(self, _flags: int, _stream_id: int, _payload: bytes) -> None:
        """Charge a GOAWAY, which has no effect, since a server opens no streams."""
        self._buckets.charge(Flood.UNKNOWN_FRAMES)

    def on_push_promise(self, _flags: int, _stream_id: int, _payload: bytes) -> None:
        """Refuse the frame, which a client must not send. Raises: ConnectionFault."""
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a client cannot push")
