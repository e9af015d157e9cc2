"""The gRPC calls of one connection: events go to the handlers, and answers to the output. No I/O, no clock.

Law: no method raises, whatever the client sends and whatever a handler does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from epp.wire import grpc
from epp.wire.call import GrpcCall
from epp.wire.deadlines import Deadlines
from epp.wire.grpc import GrpcFault, GrpcHead
from epp.wire.http2.connection import Connection
from epp.wire.http2.counters import Counters
from epp.wire.http2.errors import ConnectionFault, ErrorCode
from epp.wire.http2.events import Aborted, Event, Opened, Received
from epp.wire.http2.floods import Flood
from epp.wire.http2.limits import Limits
from epp.wire.http2.streams import Places, Stream
from epp.wire.service import Methods, Status

logger = logging.getLogger(__name__)

Pressed = Callable[[], bool]
"""Returns whether the connection's turn is over."""


def never() -> bool:
    """Return False: the turn is never over."""
    return False


class Session:
    """A connection and its calls. Owned by the event loop."""

    __slots__ = ("_assembling_bytes", "_busy", "_counters", "_incoming", "_limits", "_methods", "_share", "_wake",
                 "connection", "deadlines", "overflowed", "peer", "turn_checked")  # fmt: skip

    def __init__(
        self, methods: Methods, limits: Limits, counters: Counters, peer: str, wake: Callable[[], None],
        places: Places | None = None,
    ) -> None:  # fmt: skip
        """``wake`` is called when a handler answers between two reads."""
        self.peer = peer
        self._methods = methods
        self._limits = limits
        self._counters = counters
        self._wake = wake
        self._busy = self.turn_checked = False  # the latter: whether the turn was found to go on after the last event
        self.connection: Connection[GrpcHead] = Connection(limits, counters, grpc.interpret, places)
        self._share = self.connection.share
        self._incoming: Iterable[Event[GrpcHead] | None] | None = None  # what ``proceed`` goes on with
        self.deadlines = Deadlines(self.connection.streams)  # ``expire`` is to be called at the next one
        self.overflowed: list[GrpcCall] = []
        self._assembling_bytes = 0

    def receive(self, data: bytes, now: float, pressed: Pressed = never) -> bool:
        """Pass the messages that ``data`` completes to the handlers; returns whether all of ``data`` was read.

        Reading stops early when ``pressed`` returns True; the next call must then be ``proceed``.
        """
        incoming = self.connection.receive(data, now)
        done = self._deliver(incoming, now, pressed)
        self._incoming = None if done else incoming
        return done

    def proceed(self, now: float, pressed: Pressed = never) -> bool:
        """Go on with the data of the last ``receive``; returns whether all of it was read."""
        if self._incoming is None:
            return True
        self.connection.tick(now)
        done = self._deliver(self._incoming, now, pressed)
        if done:
            self._incoming = None
        return done

    @property
    def unfinished(self) -> bool:
        """Whether ``receive`` stopped early, so that ``proceed`` has to be called."""
        return self._incoming is not None

    def output(self, now: float) -> bytes:
        """Return what to write now; call again until it is empty or the transport is full."""
        return self.connection.output(now)

    def expire(self, now: float) -> None:
        """End the calls whose deadlines have passed."""
        self._busy = True
        for stream_id in self.deadlines.passed(now):
            stream = self.connection.streams.get(stream_id)
            if stream and isinstance(stream.call, GrpcCall):
                self._counters.deadlines_exceeded += 1
                self._fail(stream.call, GrpcFault(Status.DEADLINE_EXCEEDED, "the client's deadline has passed"))
            if stream and not stream.closed:  # its trailers wait behind bytes for which the client gives no window
                self.connection.reset(stream, ErrorCode.CANCEL)
        self._busy = False

    def drop_stalled(self, now: float) -> None:
        """End the calls whose answers have waited too long for the client's window."""
        self._deliver(self.connection.drop_stalled(now), now)

    def drop_silent(self, now: float) -> None:
        """End the calls on which the client has sent no message in time."""
        allowed_s = self._limits.first_message_s
        self._busy = True
        for stream in list(self.connection.streams.values()):  # in the order in which they were opened
            if stream.opened_at > now - allowed_s:
                break
            if isinstance(call := stream.call, GrpcCall) and call.silent:
                self._counters.silent_streams += 1
                self._fail(call, GrpcFault(Status.DEADLINE_EXCEEDED, f"no message came in {allowed_s:g} s"))
        self._busy = False

    def end(self, fault: ConnectionFault | None = None) -> None:
        """Cancel every call, because the transport was lost or has to be closed."""
        self._incoming = None
        self._deliver(self.connection.end(fault), 0.0)

    def send(self, call: GrpcCall, message: bytes) -> None:
        """Queue a message of ``call``; before the first one goes the response's head."""
        stream = call.stream
        if not stream.answered:
            self.connection.headers(stream, grpc.RESPONSE_HEAD)
        self._counters.messages_sent += 1
        if not self.connection.send(stream, grpc.pack_prefix(0, len(message)), message):
            self._counters.crowded_out_streams += self._share.forbids(len(message))
            call.over = True  # it is cancelled soon, but not while its handler is calling us
            self.overflowed.append(call)
        if not self._busy:
            self._wake()

    def finish(self, call: GrpcCall, trailers: bytes) -> None:
        """End the response of ``call``; if it had no message, head and trailers are one block."""
        stream = call.stream
        self._close(call)
        if not stream.answered:
            trailers = grpc.RESPONSE_HEAD + trailers
        self.connection.finish(stream, trailers)
        if not self._busy:
            self._wake()

    def drop_overflowed(self) -> None:
        """Reset the calls whose answers exceeded the bounds on unsent bytes."""
        while self.overflowed:
            call = self.overflowed.pop()
            self.connection.reset(call.stream, ErrorCode.ENHANCE_YOUR_CALM)
            self._cancel(call)

    # From events to handlers

    def _deliver(self, events: Iterable[Event[GrpcHead] | None], now: float, pressed: Pressed = never) -> bool:
        """Act on ``events``; returns True at their end, and False if ``pressed`` returned True before."""
        self._busy, done, checked = True, True, False
        for event in events:
            checked = False
            if type(event) is Received:
                call = event.stream.call
                if isinstance(call, GrpcCall) and not self._received(call, event.payload, event.ended):
                    continue
            elif type(event) is Opened:
                self._opened(event.stream, event.head, event.ended, now)
            elif type(event) is Aborted:
                self._aborted(event.stream)
            if pressed():
                done = False
                break
            checked = True
        if self.overflowed:
            self.drop_overflowed()
        self._busy, self.turn_checked = False, checked
        return done

    def _opened(self, stream: Stream, head: GrpcHead, ended: bool, now: float) -> None:
        if head.refusal:
            content = b"" if head.refusal.head_only else head.refusal.text.encode()
            self.connection.respond(stream, grpc.refusal_head(head.refusal), content)
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
            self.deadlines.add(now + head.timeout_s, stream.id)
        try:
            call.handler = factory(call)
        except Exception:
            self._blame(call, head.path)
        call.metadata = ()
        if ended:
            self._half_closed(call)

    def _received(self, call: GrpcCall, payload: bytes, ended: bool) -> bool:
        """Pass the messages that ``payload`` completes to the handler; returns whether the turn has to be checked.

        It need not be checked after a large piece of an incomplete message: one read has a few hundred at most.
        """
        if call.over:
            return True
        reader = call.reader
        before = reader.held_bytes
        messages = reader.feed(payload)
        crowded = False
        if change := reader.held_bytes - before:
            self._assembling_bytes += change
            crowded = self._share.hold(change)
        if messages:
            call.silent = False
            if before:
                self.connection.absolve(Flood.TINY_DATA)
            handler = call.handler
            assert handler is not None  # noqa: S101 - a call without one is over
            try:
                for message in messages:
                    self._counters.messages_received += 1
                    handler.received(message)
                    if call.over:
                        return True
            except Exception:
                self._blame(call, "received")
        elif 0 < len(payload) < grpc.SMALL_BYTES and not ended:
            self.connection.accuse(Flood.TINY_DATA)
        if ended or crowded or reader.fault or self._assembling_bytes > self._limits.max_assembly_bytes:
            self._judge(call, crowded, ended)
        return bool(messages) or len(payload) < grpc.SMALL_BYTES

    def _judge(self, call: GrpcCall, crowded: bool, ended: bool) -> None:
        """End a call that exceeds a bound or has a fault, or note that its client will send no more."""
        reader, limits = call.reader, self._limits
        if call.over:
            return
        if reader.fault:
            self._fail(call, reader.fault)
        elif reader.held_bytes and self._assembling_bytes > limits.max_assembly_bytes:
            reason = f"messages still arriving hold more than {limits.max_assembly_bytes} bytes"
            self._fail(call, GrpcFault(Status.RESOURCE_EXHAUSTED, reason))
        elif reader.held_bytes and crowded:
            self._counters.crowded_out_streams += 1
            reason = f"all connections buffer more than {limits.max_buffered_bytes} bytes; try again"
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
        """End a call with an error: its handler is cancelled, and its client gets the status."""
        if call.over:
            return
        self._cancel(call)
        self.finish(call, grpc.trailers(fault.status, str(fault)))

    def _blame(self, call: GrpcCall, where: str) -> None:
        """Fail a call whose handler raised, without details of the error in the answer; other calls go on."""
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
        """Separate call, handler and stream, whose references form a cycle, so that they need no garbage collection."""
        call.over = True
        call.handler = call.stream.call = None
        if call.reader.held_bytes:
            self._assembling_bytes -= call.reader.held_bytes
            self._share.add(-call.reader.held_bytes)
            call.reader.drop()
