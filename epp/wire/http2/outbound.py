"""The sending half of a connection: control frames go out at once, and DATA as far as both windows allow.

The rest is queued by stream. Streams that wait take turns, one frame each, so that no large answer starves a small one.

Source: RFC 9113 sections 5.2 and 6.9.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Collection

from epp.wire.http2 import frames
from epp.wire.http2.errors import ConnectionFault, ErrorCode, StreamFault
from epp.wire.http2.frames import DATA, END_STREAM
from epp.wire.http2.limits import Limits
from epp.wire.http2.settings import DEFAULT_FRAME_BYTES, DEFAULT_WINDOW_BYTES, MAX_WINDOW_BYTES
from epp.wire.http2.share import Share
from epp.wire.http2.streams import Stream

BATCH_BYTES = 1 << 18
"""Bytes of DATA that are written before the state of the transport's buffer is checked again."""
_TABLE_OFF = b"\x20"
"""An HPACK size update to zero, which goes before our first header block. We never use the peer's dynamic table, so
no later SETTINGS_HEADER_TABLE_SIZE requires an update (RFC 7541 section 4.2)."""
_pack_header = struct.Struct(">HBBBI").pack
_USEFUL_BYTES = 256


class Outbound:
    """Queues and writes the frames of one connection.

    Invariant: ``queued_bytes`` is the sum over its streams; a stream with queued bytes and an open window is in the
    rotation. ``ended`` is called when a stream's last frame was written. Owned by the Connection.
    """

    __slots__ = (
        "_chunks",
        "_ended",
        "_first_block",
        "_highest_credit",
        "_limits",
        "_rotation",
        "_share",
        "batched_bytes",
        "initial_window",
        "max_frame_bytes",
        "now",
        "paused",
        "queued_bytes",
        "useful_frames",
        "window",
    )

    def __init__(self, ended: Callable[[Stream], None], limits: Limits, share: Share) -> None:
        self.window = DEFAULT_WINDOW_BYTES
        self.initial_window = DEFAULT_WINDOW_BYTES
        self.max_frame_bytes = DEFAULT_FRAME_BYTES
        self.now = 0.0
        self.paused = False
        """Whether DATA has to wait because the transport's buffer is full."""
        self.queued_bytes = 0
        self.batched_bytes = 0
        self.useful_frames = 0
        """DATA frames that justify a WINDOW_UPDATE, because the client's windows did not cut them to a few bytes."""
        self._ended = ended
        self._limits = limits
        self._share = share
        self._chunks: list[bytes | memoryview] = []
        self._rotation: deque[Stream] = deque()
        self._first_block = True
        self._highest_credit = 0  # of any stream so far, until it is computed anew

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def control(self, frame: bytes) -> None:
        """Write a frame to which no window applies."""
        self._chunks.append(frame)

    def headers(self, stream: Stream, block: bytes, end_stream: bool = False) -> None:
        """Write a header block; with ``end_stream`` it is the stream's last frame."""
        if self._first_block:
            self._first_block = False
            block = _TABLE_OFF + block
        stream.answered = True
        self._chunks.append(frames.header_block(stream.id, block, end_stream, self.max_frame_bytes))
        if end_stream:
            self._ended(stream)

    def data(self, stream: Stream, prefix: bytes, body: bytes) -> bool:
        """Write ``prefix + body`` as one frame if that is possible now, or else queue them.

        Returns False, and does neither, if that would exceed a queue's bound.
        """
        length = len(prefix) + len(body)
        if (
            not stream.queued_bytes
            and length <= self.initial_window + stream.credit
            and length <= self.window
            and length <= self.max_frame_bytes
            and self.batched_bytes < BATCH_BYTES
            and not self.paused
        ):
            stream.credit -= length
            self.window -= length
            self.batched_bytes += length
            self.useful_frames += 1
            self._chunks += (_pack_header(length >> 8, length & 0xFF, DATA, 0, stream.id), prefix, body)
            return True
        limits = self._limits
        if (
            stream.queued_bytes + length > limits.max_stream_queue_bytes
            or self.queued_bytes + length > limits.max_connection_queue_bytes
            or self._share.forbids(length)
        ):
            return False
        self._enqueue(stream, prefix)
        self._enqueue(stream, body)
        self._pump()
        return True

    def last_data(self, stream: Stream, body: bytes) -> None:
        """End a response with ``body``, which is not empty, instead of trailers."""
        stream.finishing = True
        self._enqueue(stream, body)
        self._pump()

    def finish(self, stream: Stream, trailers: bytes) -> None:
        """End the stream with a trailer block, after its queued bytes."""
        stream.finishing = True
        stream.trailers = trailers
        if not stream.queued_bytes:
            self.headers(stream, trailers, end_stream=True)

    def forget(self, stream: Stream) -> None:
        """Drop the queued bytes of a closed stream."""
        self.queued_bytes -= stream.queued_bytes
        self._share.add(-stream.queued_bytes)
        stream.queued_bytes = 0
        stream.queue = None

    def grant(self, stream: Stream) -> None:
        """Widen the client's window of a stream if that is due, unless the client does not read our answer on it."""
        if (
            stream.queued_bytes < self._limits.send_high_water_bytes
            and not stream.remote_ended
            and not stream.finishing
            and (increment := stream.receiving.grant())
        ):
            self._chunks.append(frames.window_update(stream.id, increment))

    def take(self) -> bytes:
        """Return the bytes to write now, with at most about BATCH_BYTES of DATA."""
        if self._rotation:
            self._pump()
        self.batched_bytes = 0
        out = b"".join(self._chunks)
        self._chunks.clear()
        return out

    def widen(self, increment: int) -> None:
        """Widen the connection's send window. Raises: ConnectionFault if it overflows."""
        if self.window + increment > MAX_WINDOW_BYTES:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, f"connection window above {MAX_WINDOW_BYTES} bytes")
        self.window += increment
        if self._rotation:
            self._pump()

    def widen_stream(self, stream: Stream, increment: int) -> None:
        """Widen a stream's send window. Raises: StreamFault if it overflows."""
        credit = stream.credit + increment
        if self.initial_window + credit > MAX_WINDOW_BYTES:
            raise StreamFault(stream.id, ErrorCode.FLOW_CONTROL_ERROR, f"window above {MAX_WINDOW_BYTES} bytes")
        stream.credit = credit
        self._highest_credit = max(self._highest_credit, credit)
        if stream.queued_bytes:
            self._rotate_in(stream)
            self._pump()

    def set_initial_window(self, size: int, streams: Collection[Stream]) -> int:
        """Change every stream's window by the difference, also below zero. Raises: ConnectionFault if one overflows.

        Returns the number of streams that were visited, which is 0 unless a wider window may overflow or releases
        queued bytes.
        """
        wider = size > self.initial_window
        self.initial_window = size
        looked_at = 0
        if size + self._highest_credit > MAX_WINDOW_BYTES:  # the stream with the highest credit may be closed
            looked_at = len(streams)
            self._highest_credit = max((stream.credit for stream in streams), default=0)
            if size + self._highest_credit > MAX_WINDOW_BYTES:
                raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, f"stream window above {MAX_WINDOW_BYTES} bytes")
        if wider and self.queued_bytes:
            looked_at += len(streams)
            for stream in streams:
                if stream.queued_bytes:
                    self._rotate_in(stream)
            self._pump()
        return looked_at

    def _enqueue(self, stream: Stream, data: bytes) -> None:
        if not data:
            return
        if stream.queue is None:
            stream.queue = deque()
        if not stream.queued_bytes:
            stream.blocked_since = self.now
        stream.queue.append(data)
        stream.queued_bytes += len(data)
        self.queued_bytes += len(data)
        self._share.add(len(data))
        self._rotate_in(stream)

    def _rotate_in(self, stream: Stream) -> None:
        if not stream.ready and self.initial_window + stream.credit > 0:
            stream.ready = True
            self._rotation.append(stream)

    def _pump(self) -> None:
        """Write one frame of each waiting stream in turn, as far as the windows, the batch and the transport allow."""
        rotation = self._rotation
        while rotation and self.window > 0 and self.batched_bytes < BATCH_BYTES and not self.paused:
            stream = rotation.popleft()
            stream.ready = False
            left = self.initial_window + stream.credit
            if stream.closed or left <= 0 or not stream.queued_bytes:
                continue
            self._write_frame(stream, min(self.max_frame_bytes, self.window, left, stream.queued_bytes))
            stream.blocked_since = self.now
            if stream.queued_bytes:
                self._rotate_in(stream)
                continue
            self.grant(stream)
            if stream.finishing and stream.trailers is not None:
                self.headers(stream, stream.trailers, end_stream=True)

    def _write_frame(self, stream: Stream, size: int) -> None:
        """Write one DATA frame of ``size`` bytes, gathered from the head of the stream's queue."""
        assert stream.queue is not None  # noqa: S101 - queued_bytes > 0
        stream.credit -= size
        stream.queued_bytes -= size
        self.window -= size
        self.queued_bytes -= size
        self._share.add(-size)
        self.batched_bytes += size
        last = stream.queued_bytes == 0 and stream.finishing and stream.trailers is None
        self._chunks.append(_pack_header(size >> 8, size & 0xFF, DATA, END_STREAM if last else 0, stream.id))
        if size >= _USEFUL_BYTES or not stream.queued_bytes:
            self.useful_frames += 1
        queue, offset, left = stream.queue, stream.offset, size
        while left:
            chunk = queue[0]
            if len(chunk) - offset <= left:
                queue.popleft()
                self._chunks.append(memoryview(chunk)[offset:] if offset else chunk)
                left -= len(chunk) - offset
                offset = 0
            else:
                self._chunks.append(memoryview(chunk)[offset : offset + left])
                offset += left
                left = 0
        stream.offset = offset
        if last:
            self._ended(stream)
