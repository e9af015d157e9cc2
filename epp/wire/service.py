"""What a transport hosts: gRPC methods as plain objects, called on the event loop.

Two transports serve the same ``Methods``: our own (``epp.wire.server``) and grpcio's (``epp.wire.aio``). A handler is
one call's object; it is called from one task only, synchronously, and answers by calling its ``Call``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Protocol


class Status(IntEnum):
    """gRPC status codes that we send or meet."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class Call(Protocol):
    """One gRPC call, seen from its handler. Calls on an ended call do nothing."""

    @property
    def metadata(self) -> Sequence[tuple[str, str]]:
        """Request metadata, lower-case names; binary values (``-bin``) stay in base64.

        Empty once the handler is made: kept, the headers of all open calls could be gigabytes. A handler that needs
        some copies them.
        """

    @property
    def peer(self) -> str:
        """The client's address, ``10.0.0.1:50000``."""

    def send(self, message: bytes) -> None:
        """Queue one message; it goes out with everything else of this read. The handler keeps no reference to it."""

    def finish(self, status: Status = Status.OK, message: str = "") -> None:
        """Send the trailers after what is queued; nothing is delivered to the handler afterwards."""


class Handler(Protocol):
    """The server's side of one call. Exactly one of ``half_closed``-then-``finish`` and ``cancelled`` ends it."""

    def received(self, message: bytes) -> None:
        """One complete message, in order."""

    def half_closed(self) -> None:
        """The client will send no more; the handler finishes now or later."""

    def cancelled(self) -> None:
        """The call is over and nothing can be sent: reset, deadline, or connection lost. Called at most once, and
        never after ``Call.finish``."""


Methods = Mapping[str, Callable[[Call], Handler]]
"""Handler factories by full method path, ``/package.Service/Method``."""
