"""The state of one stream, and the record of how the last closed streams ended."""

from __future__ import annotations

from collections import deque
from enum import Enum

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
