"""The streams of one connection: the open ones, how others ended, and the ids that may follow.

Source: RFC 9113 section 5.1.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from epp.wire.http2.counters import Counters
from epp.wire.http2.errors import ConnectionFault, ErrorCode, StreamFault
from epp.wire.http2.frames import MAX_STREAM_ID
from epp.wire.http2.windows import ReceiveWindow

_REMEMBERED = 1024


class Stream:
    """An open or half-closed stream; a closed one is in no table, and only its ``closed`` is valid.

    Invariant: ``queued_bytes`` is the length of ``queue`` less ``offset``; ``ready`` is whether it waits in the
    sender's rotation. Owned by its Connection; ``call`` belongs to the layer above.
    """

    __slots__ = (
        "answered",
        "blocked_since",
        "call",
        "closed",
        "content_left",
        "credit",
        "finishing",
        "id",
        "offset",
        "opened_at",
        "queue",
        "queued_bytes",
        "ready",
        "receiving",
        "remote_ended",
        "trailers",
    )

    def __init__(self, stream_id: int, receiving: ReceiveWindow, content_length: int | None, now: float) -> None:
        self.id = stream_id
        self.opened_at = now
        self.credit = 0
        """The stream's send window, less the initial window of all streams, which the client's SETTINGS set."""
        self.receiving = receiving
        self.content_left = content_length
        self.queue: deque[bytes] | None = None
        self.offset = 0
        self.queued_bytes = 0
        self.blocked_since = 0.0
        self.trailers: bytes | None = None
        """The trailers after the queue, once ``finishing``; with None the last DATA frame ends the stream."""
        self.answered = self.closed = self.finishing = self.ready = self.remote_ended = False
        self.call: object = None


class Closing(Enum):
    """How a stream was closed, which decides the meaning of a late frame on it."""

    ENDED = "both sides ended it"
    RESET_BY_PEER = "the client reset it"
    RESET_BY_US = "we reset it, and the client may not know yet"
    FORGOTTEN = "closed long ago"
    NEVER_OPENED = "skipped: a later stream was opened first"


class ClosedStreams:
    """Records how the last 1,024 streams or more ended, and never more than 2,048."""

    __slots__ = ("_horizon", "_older", "_recent")

    def __init__(self) -> None:
        self._recent: dict[int, Closing] = {}
        self._older: dict[int, Closing] = {}
        self._horizon = 0  # of ids up to here some are forgotten

    def add(self, stream_id: int, how: Closing) -> None:
        """Record a stream's end; the oldest records are dropped."""
        recent = self._recent
        recent[stream_id] = how
        if len(recent) >= _REMEMBERED:
            self._horizon = max(self._horizon, *self._older, 0)
            self._older, self._recent = recent, {}

    def how(self, stream_id: int) -> Closing:
        """Return how ``stream_id`` was closed; it must not be above the highest id so far."""
        how = self._recent.get(stream_id) or self._older.get(stream_id)
        if how:
            return how
        return Closing.FORGOTTEN if stream_id <= self._horizon else Closing.NEVER_OPENED


class Places:
    """How many streams are open on all connections of one address. Owned by the event loop."""

    __slots__ = ("taken",)

    def __init__(self) -> None:
        self.taken = 0


class StreamTable:
    """The streams by id: ``open`` has the open and half-closed ones; other odd ids up to ``last_id`` are closed.

    Higher ids are idle. Even ids belong to the server, which opens no streams, so they are always idle. Owned by its
    Connection.
    """

    __slots__ = ("_closed", "_counters", "accepts_to", "last_id", "open", "places")

    def __init__(self, counters: Counters, places: Places) -> None:
        self.open: dict[int, Stream] = {}
        self.last_id = 0
        self.accepts_to = MAX_STREAM_ID
        """The highest id that our last GOAWAY promised to serve."""
        self._closed = ClosedStreams()
        self._counters = counters
        self.places = places

    def admit(self, stream_id: int) -> bool:
        """Record a new stream's id, and return whether it is to be served. Raises: ConnectionFault if it is even."""
        if not stream_id & 1:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"a client's stream {stream_id} is even")
        self.last_id = stream_id
        return stream_id <= self.accepts_to

    def add(self, stream: Stream) -> None:
        """Add a stream that was just opened."""
        self.open[stream.id] = stream
        self.places.taken += 1
        self._counters.streams += 1
        self._counters.streams_total += 1

    def close(self, stream_id: int, how: Closing) -> Stream | None:
        """Move a stream to the closed ones, and return it; None if it was not open."""
        stream = self.open.pop(stream_id, None)
        if stream:
            stream.closed = True
            self.places.taken -= 1
            self._counters.streams -= 1
        self._closed.add(stream_id, how)
        return stream

    def is_idle(self, stream_id: int) -> bool:
        """Return whether the id was neither used nor skipped so far."""
        return stream_id > self.last_id or not stream_id & 1

    def check_not_idle(self, stream_id: int) -> None:
        """Check that the stream was open once. Raises: ConnectionFault for a frame on an idle stream."""
        if self.is_idle(stream_id):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"stream {stream_id} is idle")

    def check_late(self, stream_id: int) -> None:
        """Check DATA or HEADERS on a stream that is not open; they are ignored if they may have crossed our reset.

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
