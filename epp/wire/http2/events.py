"""The events that a connection makes of the bytes it reads."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from epp.wire.http2.errors import ErrorCode
from epp.wire.http2.streams import Stream

Head = TypeVar("Head")


class Opened(msgspec.Struct, Generic[Head], frozen=True, gc=False):
    """A request has begun; ``ended`` if it has no body."""

    stream: Stream
    head: Head
    ended: bool


class Received(msgspec.Struct, frozen=True, gc=False):
    """A piece of a request's body, which may be empty; ``ended`` if it is the last one."""

    stream: Stream
    payload: bytes
    ended: bool


class Aborted(msgspec.Struct, frozen=True, gc=False):
    """A stream was closed before both sides ended it; nothing can be sent on it."""

    stream: Stream
    code: ErrorCode | int


Event = Opened[Head] | Received | Aborted
