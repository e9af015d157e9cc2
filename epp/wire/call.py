"""One gRPC call between its stream and its handler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from epp.wire import grpc
from epp.wire.grpc import GrpcHead, MessageReader
from epp.wire.http2.stream import Stream
from epp.wire.service import Handler, Status


class Calls(Protocol):
    """The connection's calls, as one of them sees them: where its answers go."""

    peer: str
    """The client's address."""

    def send(self, call: GrpcCall, message: bytes) -> None:
        """Queue a message of ``call``."""

    def finish(self, call: GrpcCall, trailers: bytes) -> None:
        """End the response of ``call`` with ``trailers``."""


class GrpcCall:
    """The ``Call`` that a handler answers. Once ``over``, nothing reaches the handler, and nothing it says the wire.

    Owned by the session of its connection.
    """

    __slots__ = ("_session", "handler", "metadata", "over", "reader", "silent", "stream")

    def __init__(self, session: Calls, stream: Stream, head: GrpcHead, max_message_bytes: int) -> None:
        self.metadata: Sequence[tuple[str, str]] = head.metadata
        self.stream = stream
        self.over = False
        self.silent = True
        """Whether no message has come."""
        self.handler: Handler | None = None
        self.reader = MessageReader(max_message_bytes, head.compressed)
        self._session = session

    @property
    def peer(self) -> str:
        """The client's address."""
        return self._session.peer

    def send(self, message: bytes) -> None:
        """Queue one message."""
        if not self.over:
            self._session.send(self, message)

    def finish(self, status: Status = Status.OK, message: str = "") -> None:
        """Send the trailers after what is queued."""
        if not self.over:
            self._session.finish(self, grpc.trailers(status, message))
