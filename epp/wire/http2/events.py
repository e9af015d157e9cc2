"""What a connection reports of what it read."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from epp.wire.http2.errors import ErrorCode
from epp.wire.http2.stream import Stream

Head = TypeVar("Head")


class Opened(msgspec.Struct, Generic[Head], frozen=True, gc=False):
    """A request began; ``ended`` when it has no body."""

    stream: Stream
    head: Head
    ended: bool


class Received(msgspec.Struct, frozen=True, gc=False):
    """Some of a request's body, which may be empty; ``ended`` when it is the last."""

    stream: Stream
    payload: bytes
    ended: bool


class Aborted(msgspec.Struct, frozen=True, gc=False):
    """A stream is gone before both sides ended it; nothing can be sent on it."""

    stream: Stream
    code: ErrorCode | int


Event = Opened[Head] | Received | Aborted
