"""Bounds on useless work: each kind has a token bucket, and an empty bucket ends the connection.

The normal traffic of a proxy fits. Envoy resets every lean stream *after* our answer, which costs no token, and ten
thousand clients that cancel at the same time before our answer use a third of the bucket. An attacker can cause as much
work as the bucket holds once, and later as much as its refill rate allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple


class Flood(Enum):
    """The kinds of useless work, by which the statistics count ended connections."""

    RESETS = "resets"
    """Streams that were opened and reset before our answer (rapid reset), or refused above the concurrency limit."""
    STREAM_ERRORS = "stream-errors"
    """Faults that make *us* reset a stream, which is the same attack with exchanged roles."""
    CONTINUATIONS = "continuations"
    """CONTINUATION frames of a header block that does not end."""
    HEADER_BOMB = "header-bomb"
    """A header block that is far above the limit, packed or unpacked, or many blocks that are just above it."""
    SETTINGS = "settings"
    PINGS = "pings"
    PRIORITIES = "priorities"
    EMPTY_DATA = "empty-data"
    """DATA frames that are empty and do not end a stream."""
    TINY_DATA = "tiny-data"
    """DATA frames with a few bytes of a message that they do not complete."""
    WINDOW_UPDATES = "window-updates"
    """Windows that are widened in such small steps that every byte costs a frame."""
    UNKNOWN_FRAMES = "unknown-frames"
    """Ignored frames: unknown types, GOAWAY, and header blocks on streams that we have reset. Such blocks must still be
    decoded, so every 64 bytes of them count as another frame."""
    STALLED = "stalled"
    """Answers for which the client never gives enough window."""
    UNREAD = "unread"
    """Answers to control frames that the client does not read."""

    __hash__ = object.__hash__
    """Enum's own hash is a Python function, and the buckets are looked up several times for each request."""


class Rate(NamedTuple):
    """The size of a bucket, and its refill rate. Units: events, events per second."""

    burst: float
    per_s: float


FLOOD_RATES: Mapping[Flood, Rate] = {
    Flood.RESETS: Rate(30_000, 500),
    Flood.STREAM_ERRORS: Rate(1_000, 20),
    Flood.HEADER_BOMB: Rate(100, 1),
    Flood.SETTINGS: Rate(1_000, 10),
    Flood.PINGS: Rate(2_000, 50),
    Flood.PRIORITIES: Rate(2_000, 100),
    Flood.EMPTY_DATA: Rate(1_000, 50),
    Flood.TINY_DATA: Rate(10_000, 1_000),
    Flood.WINDOW_UPDATES: Rate(10_000, 1_000),
    Flood.UNKNOWN_FRAMES: Rate(10_000, 500),
    Flood.STALLED: Rate(200, 1),
}
"""Guesses: each is far above the observed traffic of Envoy 1.40 and grpcio, and costs less than a second of CPU."""
