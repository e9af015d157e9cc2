"""One gRPC call, which connects a stream and a handler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from epp.wire import grpc
from epp.wire.grpc import GrpcHead, MessageReader
from epp.wire.http2.streams import Stream
from epp.wire.service import Handler, Status


class Calls(Protocol):
    """The part of a session to which its calls pass their answers."""

    peer: str
    """The client's address."""

    def send(self, call: GrpcCall, message: bytes) -> None:
        """Queue a message of ``call``."""

    def finish(self, call: GrpcCall, trailers: bytes) -> None:
        """End the response of ``call`` with ``trailers``."""


class GrpcCall:
    """The ``Call`` that a handler answers. Once ``over``, no message reaches the handler, and no answer the client.

    Owned by the session of its connection.
    """

    __slots__ = ("_session", "handler", "metadata", "over", "reader", "silent", "stream")

    def __init__(self, session: Calls, stream: Stream, head: GrpcHead, max_message_bytes: int) -> None:
        self.metadata: Sequence[tuple[str, str]] = head.metadata
        self.stream = stream
        self.over = False
        self.silent = True
        """Whether no message has arrived yet."""
        self.handler: Handler | None = None
        self.reader = MessageReader(max_message_bytes, head.compressed)
        self._session = session

    @property
    def peer(self) -> str:
        """Return the client's address and port."""
        return self._session.peer

    def send(self, message: bytes) -> None:
        """Queue one message, unless the call is over."""
        if not self.over:
            self._session.send(self, message)

    def finish(self, status: Status = Status.OK, message: str = "") -> None:
        """Send the trailers after what is queued."""
        if not self.over:
            self._session.finish(self, grpc.trailers(status, message))
