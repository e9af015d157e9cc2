"""One connection's gRPC calls: from its events to the handlers, and from the handlers to its output. No I/O, no clock.

Law: nothing raises out of here, whatever the client sends and whatever a handler does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush

from epp.wire import grpc
from epp.wire.call import GrpcCall
from epp.wire.connection import Connection
from epp.wire.counters import Counters
from epp.wire.errors import ConnectionFault, ErrorCode
from epp.wire.events import Aborted, Event, Opened, Received
from epp.wire.grpc import GrpcFault, GrpcHead
from epp.wire.limits import Limits
from epp.wire.service import Methods, Status
from epp.wire.stream import Stream

logger = logging.getLogger(__name__)


class Session:
    """A connection and its calls. ``wake`` is called when a handler answers between reads. Owned by the event loop."""

    __slots__ = ("_assembling_bytes", "_busy", "_connection", "_counters", "_deadlines", "_limits", "_methods",
                 "_overflowed", "_wake", "peer")  # fmt: skip

    def __init__(
        self, methods: Methods, limits: Limits, counters: Counters, peer: str, wake: Callable[[], None]
    ) -> None:
        self.peer = peer
        self._methods = methods
        self._limits = limits
        self._counters = counters
        self._wake = wake
        self._busy = False
        self._connection: Connection[GrpcHead] = Connection(limits, counters, grpc.interpret)
        self._deadlines: list[tuple[float, int]] = []
        self._overflowed: list[GrpcCall] = []
        self._assembling_bytes = 0

    @property
    def connection(self) -> Connection[GrpcHead]:
        """The protocol below."""
        return self._connection

    @property
    def next_deadline(self) -> float | None:
        """When ``expire`` is to be called; it may be early."""
        return self._deadlines[0][0] if self._deadlines else None

    def receive(self, data: bytes, now: float) -> None:
        """Let the handlers have what ``data`` completes."""
        self._deliver(self._connection.receive(data, now), now)

    def output(self, now: float) -> bytes:
        """Return what to write now; call again until it is empty or the transport is full."""
        return self._connection.output(now)

    def expire(self, now: float) -> None:
        """End the calls whose deadline has come."""
        self._busy = True
        while self._deadlines and self._deadlines[0][0] <= now:
            _, stream_id = heappop(self._deadlines)
            stream = self._connection.streams.get(stream_id)
            if stream and isinstance(stream.call, GrpcCall):
                self._counters.deadlines_exceeded += 1
                self._fail(stream.call, GrpcFault(Status.DEADLINE_EXCEEDED, "the client's deadline has passed"))
            if stream and not stream.closed:  # trailers behind bytes that the client does not let out
                self._connection.reset(stream, ErrorCode.CANCEL)
        self._busy = False

    def drop_stalled(self, now: float) -> None:
        """End the calls whose answers the client does not let out."""
        self._deliver(self._connection.drop_stalled(now), now)

    def end(self, fault: ConnectionFault | None = None) -> None:
        """Cancel every call: the transport was lost, or is to be closed."""
        self._deliver(self._connection.end(fault), 0.0)

    def send(self, call: GrpcCall, message: bytes) -> None:
        """Queue a call's message, its response's head before the first."""
        stream = call.stream
        if not stream.answered:
            self._connection.headers(stream, grpc.RESPONSE_HEAD)
        self._counters.messages_sent += 1
        if not self._connection.send(stream, grpc.prefix(message), message):
            call.over = True  # and cancelled soon, but not inside its own call to us
            self._overflowed.append(call)
        if not self._busy:
            self._wake()

    def finish(self, call: GrpcCall, trailers: bytes) -> None:
        """End a call's response; without any message before, head and trailers are one block."""
        stream = call.stream
        self._close(call)
        if not stream.answered:
            trailers = grpc.RESPONSE_HEAD + trailers
        self._connection.finish(stream, trailers)
        if not self._busy:
            self._wake()

    def drop_overflowed(self) -> None:
        """Reset the calls that have more to say than the client reads."""
        while self._overflowed:
            call = self._overflowed.pop()
            self._connection.reset(call.stream, ErrorCode.ENHANCE_YOUR_CALM)
            self._cancel(call)

    # From events to handlers

    def _deliver(self, events: Iterable[Event[GrpcHead]], now: float) -> None:
        self._busy = True
        for event in events:
            if type(event) is Received:
                call = event.stream.call
                if isinstance(call, GrpcCall):
                    self._received(call, event.payload, event.ended)
            elif type(event) is Opened:
                self._opened(event.stream, event.head, event.ended, now)
            elif type(event) is Aborted:
                self._aborted(event.stream)
        if self._overflowed:
            self.drop_overflowed()
        self._busy = False

    def _opened(self, stream: Stream, head: GrpcHead, ended: bool, now: float) -> None:
        if head.refusal:
            content = b"" if head.refusal.head_only else head.refusal.text.encode()
            self._connection.respond(stream, grpc.refusal_head(head.refusal), content)
            return
        factory = self._methods.get(head.path)
        call = GrpcCall(self, stream, head, self._limits.max_receive_message_bytes)
        stream.call = call
        if head.fault:
            self._fail(call, head.fault)
            return
        if factory is None:
            self._fail(call, GrpcFault(Status.UNIMPLEMENTED, f"unknown method {head.path}"))
            return
        if head.timeout_s is not None:
            self._remember_deadline(now + head.timeout_s, stream.id)
        try:
            call.handler = factory(call)
        except Exception:
            self._blame(call, head.path)
        if ended:
            self._half_closed(call)

    def _received(self, call: GrpcCall, payload: bytes, ended: bool) -> None:
        if call.over:
            return
        reader = call.reader
        before = reader.held_bytes
        messages = reader.feed(payload)
        self._assembling_bytes += reader.held_bytes - before
        handler = call.handler
        assert handler is not None  # noqa: S101 - a call without one is over
        try:
            for message in messages:
                self._counters.messages_received += 1
                handler.received(message)
                if call.over:
                    break
        except Exception:
            self._blame(call, "received")
        if call.over:
            return
        if reader.fault:
            self._fail(call, reader.fault)
        elif self._assembling_bytes > self._limits.max_assembly_bytes and reader.held_bytes:
            reason = f"messages still arriving hold more than {self._limits.max_assembly_bytes} bytes"
            self._fail(call, GrpcFault(Status.RESOURCE_EXHAUSTED, reason))
        elif ended:
            self._half_closed(call)

    def _half_closed(self, call: GrpcCall) -> None:
        if call.over:
            return
        if call.reader.held_bytes:
            self._fail(call, GrpcFault(Status.INTERNAL, "the request ended inside a message"))
            return
        assert call.handler is not None  # noqa: S101 - a call without one is over
        try:
            call.handler.half_closed()
        except Exception:
            self._blame(call, "half_closed")

    def _aborted(self, stream: Stream) -> None:
        call = stream.call
        if isinstance(call, GrpcCall) and not call.over:
            self._cancel(call)

    # Ends

    def _fail(self, call: GrpcCall, fault: GrpcFault) -> None:
        """End a call from our side: its handler is cancelled, its client told."""
        if call.over:
            return
        self._cancel(call)
        self.finish(call, grpc.trailers(fault.status, str(fault)))

    def _blame(self, call: GrpcCall, where: str) -> None:
        """A handler raised: its call fails, with nothing of the error in the answer; the others go on."""
        logger.exception("handler failed in %s; its call ends with INTERNAL", where)
        self._counters.handler_errors += 1
        self._fail(call, GrpcFault(Status.INTERNAL, "internal error"))

    def _cancel(self, call: GrpcCall) -> None:
        handler = call.handler
        self._close(call)
        if handler is None:
            return
        try:
            handler.cancelled()
        except Exception:
            logger.exception("handler failed in cancelled")
            self._counters.handler_errors += 1

    def _close(self, call: GrpcCall) -> None:
        """Part call, handler and stream, which know each other: no garbage is left for the collector to find."""
        call.over = True
        call.handler = call.stream.call = None
        if call.reader.held_bytes:
            self._assembling_bytes -= call.reader.held_bytes
            call.reader.drop()

    def _remember_deadline(self, when: float, stream_id: int) -> None:
        heappush(self._deadlines, (when, stream_id))
        if len(self._deadlines) > 2 * len(self._connection.streams) + 1024:  # mostly of calls that are over
            self._deadlines = [d for d in self._deadlines if d[1] in self._connection.streams]
            heapify(self._deadlines)
