"""What the two processes say to each other.

The picker says whom to follow; the other process orders changes of the picker's index, and reports how it fares.
Each message on the pipe is its length, four bytes, and MessagePack.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class Add(msgspec.Struct, array_like=True, tag=0, gc=False):
    """``PreciseIndex.add``."""

    run: int
    parent: int
    block_tokens: int
    digests: bytes


class Grow(msgspec.Struct, array_like=True, tag=1, gc=False):
    """``PreciseIndex.grow``."""

    run: int
    digests: bytes


class Split(msgspec.Struct, array_like=True, tag=2, gc=False):
    """``PreciseIndex.split``."""

    run: int
    blocks: int
    upper: int


class Hold(msgspec.Struct, array_like=True, tag=3, gc=False):
    """``PreciseIndex.hold``."""

    run: int
    holder: int
    blocks: int


class Drop(msgspec.Struct, array_like=True, tag=4, gc=False):
    """``PreciseIndex.drop``."""

    run: int


Order: TypeAlias = Add | Grow | Split | Hold | Drop


class Fares(msgspec.Struct, array_like=True, tag=5, gc=False):
    """How a source fares."""

    source: int
    why: str
    """Why it is not sure what the endpoint holds (``stream.Why``); empty where it is."""
    known: int
    """Tiers of which everything is known, one bit each."""
    tokens: tuple[int, ...]
    """Held by tier."""
    gaps: int
    restarts: int


class Left(msgspec.Struct, array_like=True, tag=6, gc=False):
    """Nothing is held by a source any more, and nothing more will be said of it."""

    source: int


class Note(msgspec.Struct, array_like=True, tag=7, gc=False):
    """Something is met for the first time: an adapter, or what an operator may want to know of."""

    kind: str
    value: str


class Counts(msgspec.Struct, array_like=True, tag=8, gc=False):
    """What became of events so far."""

    counts: dict[str, int]
    blocks: int
    """Distinct ones, all endpoints together."""
    runs: int


Report: TypeAlias = Add | Grow | Split | Hold | Drop | Fares | Left | Note | Counts


class Start(msgspec.Struct, array_like=True, tag=0):
    """How to follow; the first thing said."""

    secret: bytes
    """Of the digests."""
    topic: str
    """What the topics of batches begin with; others are left out."""
    bind: str = ""
    """Where all publishers connect to; empty where they are connected to."""


class Wire(msgspec.Struct, array_like=True, frozen=True):
    """Where one publisher is."""

    events: str
    replay: str = ""
    """Empty: it cannot be asked."""


class Follow(msgspec.Struct, array_like=True, tag=1):
    """Follow an endpoint."""

    source: int
    address: str
    wires: tuple[Wire, ...] = ()


class Leave(msgspec.Struct, array_like=True, tag=2):
    """Follow it no more."""

    source: int


Command: TypeAlias = Start | Follow | Leave

LENGTH_BYTES = 4
_encode = msgspec.msgpack.Encoder().encode


def framed(message: object) -> bytes:
    """``message`` as it goes through a pipe."""
    data = _encode(message)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data
