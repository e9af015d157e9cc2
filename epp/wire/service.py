"""The interface of a transport: gRPC methods as plain objects, which are called on the event loop.

Two transports serve the same ``Methods``: our own (``epp.wire.server``) and grpcio's (``epp.wire.aio``). Each call has
a handler of its own, which is called synchronously, from one task only, and answers by calling its ``Call``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Protocol


class Status(IntEnum):
    """The gRPC status codes that occur here."""

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
    """One gRPC call, as its handler uses it. Once the call has ended, its methods do nothing."""

    @property
    def metadata(self) -> Sequence[tuple[str, str]]:
        """Request metadata, lower-case names; binary values (``-bin``) stay in base64.

        It is empty after the handler was made, since the headers of all open calls could be gigabytes. A handler that
        needs some of them copies them in its constructor.
        """

    @property
    def peer(self) -> str:
        """The client's address and port, such as ``10.0.0.1:50000``."""

    def send(self, message: bytes) -> None:
        """Queue one message, which is written together with all other answers to the current read.

        The handler must not keep a reference to the message.
        """

    def finish(self, status: Status = Status.OK, message: str = "") -> None:
        """Send the trailers after the queued messages; afterwards the handler is not called again."""


class Handler(Protocol):
    """The server's side of one call. It ends with ``Call.finish``, or with ``cancelled``, and never with both."""

    def received(self, message: bytes) -> None:
        """Take the next complete message of the client."""

    def half_closed(self) -> None:
        """Note that the client will send no more; the handler finishes now or later."""

    def cancelled(self) -> None:
        """Clean up: the call is over by a reset, a deadline or a lost connection, and nothing can be sent.

        This is called at most once, and never after ``Call.finish``.
        """


Methods = Mapping[str, Callable[[Call], Handler]]
"""Handler factories by full method path, ``/package.Service/Method``."""
