"""The streams of one connection: which are open, how the others ended, and which ids may come next.

Source: RFC 9113 section 5.1.
"""

from __future__ import annotations

from epp.wire.http2.counters import Counters
from epp.wire.http2.errors import ConnectionFault, ErrorCode, StreamFault
from epp.wire.http2.frames import MAX_STREAM_ID
from epp.wire.http2.stream import ClosedStreams, Closing, Stream


class Places:
    """How many streams are open on all connections of one address. Owned by the event loop."""

    __slots__ = ("taken",)

    def __init__(self) -> None:
        self.taken = 0


class StreamTable:
    """``open`` holds the open and half-closed streams; all other odd ids up to ``last_id`` are closed.

    Those above are idle; even ids are ours to open, which we never do, so they are idle for ever. Owned by its
    Connection.
    """

    __slots__ = ("_closed", "_counters", "accepts_to", "last_id", "open", "places")

    def __init__(self, counters: Counters, places: Places) -> None:
        self.open: dict[int, Stream] = {}
        self.last_id = 0
        self.accepts_to = MAX_STREAM_ID
        """The id that our last GOAWAY promised to serve."""
        self._closed = ClosedStreams()
        self._counters = counters
        self.places = places

    def admit(self, stream_id: int) -> bool:
        """Take note of a new stream's id, and return whether it is to be served. Raises: ConnectionFault."""
        if not stream_id & 1:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"a client's stream {stream_id} is even")
        self.last_id = stream_id
        return stream_id <= self.accepts_to

    def add(self, stream: Stream) -> None:
        """Open a stream."""
        self.open[stream.id] = stream
        self.places.taken += 1
        self._counters.streams += 1
        self._counters.streams_total += 1

    def close(self, stream_id: int, how: Closing) -> Stream | None:
        """Move a stream to the closed ones; None when it was not open."""
        stream = self.open.pop(stream_id, None)
        if stream:
            stream.closed = True
            self.places.taken -= 1
            self._counters.streams -= 1
        self._closed.add(stream_id, how)
        return stream

    def is_idle(self, stream_id: int) -> bool:
        """Whether the id was neither used nor skipped."""
        return stream_id > self.last_id or not stream_id & 1

    def check_not_idle(self, stream_id: int) -> None:
        """Raises: ConnectionFault for a frame that only a stream which was once open may get."""
        if self.is_idle(stream_id):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"stream {stream_id} is idle")

    def check_late(self, stream_id: int) -> None:
        """Judge DATA or HEADERS on a stream that is not open: silence when it may have crossed our reset.

        Raises: ConnectionFault, StreamFault.
        """
        self.check_not_idle(stream_id)
        how = self._closed.how(stream_id)
        if how is Closing.ENDED:
            raise ConnectionFault(ErrorCode.STREAM_CLOSED, f"stream {stream_id}: {how.value}")
        if how is Closing.NEVER_OPENED:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"stream {stream_id} after stream {self.last_id}")
        if how is not Closing.RESET_BY_US:
            raise StreamFault(stream_id, ErrorCode.STREAM_CLOSED, how.value)
