"""The messages between the picker and the process that follows the engines.

The picker commands which endpoints to follow. The follower sends orders that change the picker's index, and reports on
each endpoint. A message on the pipe is its length, in four bytes, followed by MessagePack.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

import msgspec


class Add(msgspec.Struct, array_like=True, tag=0, gc=False):
    """An order to call ``PreciseIndex.add``."""

    run: int
    parent: int
    block_tokens: int
    digests: bytes


class Grow(msgspec.Struct, array_like=True, tag=1, gc=False):
    """An order to call ``PreciseIndex.grow``."""

    run: int
    digests: bytes


class Split(msgspec.Struct, array_like=True, tag=2, gc=False):
    """An order to call ``PreciseIndex.split``."""

    run: int
    blocks: int
    upper: int


class Hold(msgspec.Struct, array_like=True, tag=3, gc=False):
    """An order to call ``PreciseIndex.hold``."""

    run: int
    holder: int
    blocks: int


class Drop(msgspec.Struct, array_like=True, tag=4, gc=False):
    """An order to call ``PreciseIndex.drop``."""

    run: int


Order: TypeAlias = Add | Grow | Split | Hold | Drop


class Incomplete(Enum):
    """The reason why the blocks of an endpoint are not fully known."""

    NOT_CONNECTED = "not connected"
    CATCHING_UP = "catching up"
    JOINED_LATE = "joined late"
    """The publisher had published before we connected, and offers no replay."""
    GAP = "gap"
    """Batches are missing, and the publisher offers no replay."""
    REPLAY_TOO_SHORT = "replay too short"
    """The publisher no longer has the missing batches."""
    REPLAY_FAILED = "replay failed"
    UNREADABLE = "unreadable"
    """A batch could not be read."""


class SourceStatus(msgspec.Struct, array_like=True, tag=5, gc=False):
    """The status of a source."""

    source: int
    why: str
    """Why the endpoint's blocks are not fully known (``Incomplete``); empty if they are."""
    known: int
    """The tiers whose blocks are fully known, one bit each."""
    tokens: tuple[int, ...]
    """How many tokens are held, by tier."""
    gaps: int
    restarts: int


class Left(msgspec.Struct, array_like=True, tag=6, gc=False):
    """A report that a source holds nothing any more; the last report about it."""

    source: int


class Note(msgspec.Struct, array_like=True, tag=7, gc=False):
    """A report of something new: an adapter, or what an operator may want to know."""

    kind: str
    value: str


class Counts(msgspec.Struct, array_like=True, tag=8, gc=False):
    """What happened to all events so far."""

    counts: dict[str, int]
    blocks: int
    """The number of distinct blocks, over all endpoints."""
    runs: int


FollowerMessage: TypeAlias = Add | Grow | Split | Hold | Drop | SourceStatus | Left | Note | Counts


class Start(msgspec.Struct, array_like=True, tag=0):
    """The settings of the follower; the first command."""

    secret: bytes
    """The secret key of the digests."""
    topic: str
    """The prefix of the topics to follow; batches with other topics are skipped."""
    bind: str = ""
    """The address to which all publishers connect; empty if the follower connects to them."""


class Wire(msgspec.Struct, array_like=True, frozen=True):
    """The addresses of one publisher."""

    events: str
    replay: str = ""
    """Where missed batches are requested again; empty if the publisher offers no replay."""


class Follow(msgspec.Struct, array_like=True, tag=1):
    """A command to follow an endpoint."""

    source: int
    address: str
    wires: tuple[Wire, ...] = ()


class Leave(msgspec.Struct, array_like=True, tag=2):
    """A command to stop following an endpoint."""

    source: int


Command: TypeAlias = Start | Follow | Leave

LENGTH_BYTES = 4
_encode = msgspec.msgpack.Encoder().encode


def framed(message: object) -> bytes:
    """Return ``message`` encoded for the pipe."""
    data = _encode(message)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data
