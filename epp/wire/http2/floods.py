"""What a client may make us do for nothing: each kind has a token bucket, and an empty bucket ends the connection.

A proxy's ordinary life fits: Envoy resets every lean stream *after* we answered, which costs nothing here, and ten
thousand clients that cancel at once before we answered are a third of the bucket. What an attacker gains is bounded by
the bucket's size once, and by its refill rate for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple


class Flood(Enum):
    """The kinds of useless work, as they are counted in the statistics."""

    RESETS = "resets"
    """Streams opened and reset before we answered (rapid reset), or refused above the concurrency limit."""
    STREAM_ERRORS = "stream-errors"
    """Faults that make *us* reset a stream: the same attack with the roles exchanged."""
    CONTINUATIONS = "continuations"
    """Frames of one header block that never ends."""
    HEADER_BOMB = "header-bomb"
    """A header block that is, or unpacks to, far more than the limit, or many that are just above it."""
    SETTINGS = "settings"
    PINGS = "pings"
    PRIORITIES = "priorities"
    EMPTY_DATA = "empty-data"
    """DATA frames that carry nothing and end nothing."""
    TINY_DATA = "tiny-data"
    """DATA frames that carry next to nothing of a message and do not end it."""
    WINDOW_UPDATES = "window-updates"
    """Windows opened in such small steps that every byte costs a frame."""
    UNKNOWN_FRAMES = "unknown-frames"
    """Frames that we only ignore: of unknown types, GOAWAY, header blocks on streams that we have reset. These must be
    decoded all the same, so every 64 bytes of them count as another frame."""
    STALLED = "stalled"
    """Answers that the client asked for and then never let out."""
    UNREAD = "unread"
    """A client that makes us answer control frames and does not read the answers."""

    __hash__ = object.__hash__
    """Enum's own hash is a Python function, and the buckets are looked up several times for each request."""


class Rate(NamedTuple):
    """A bucket's size, and how fast it fills again. Units: events, events per second."""

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
"""Guesses, each far above what Envoy 1.40 and grpcio were seen to send, each under a second of our time."""
