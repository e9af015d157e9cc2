"""One connection of the default transport: it connects a session with a socket, the clock and the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Protocol, cast

from typing_extensions import override

from epp.ports.door import Report, failed_alpn
from epp.wire.grpc import GrpcHead
from epp.wire.http2.connection import Connection
from epp.wire.http2.counters import Counters
from epp.wire.http2.errors import ConnectionFault, ErrorCode
from epp.wire.http2.floods import Flood
from epp.wire.http2.limits import Limits
from epp.wire.http2.outbound import BATCH_BYTES
from epp.wire.notices import Notices
from epp.wire.origins import Origin, Origins
from epp.wire.service import Methods
from epp.wire.session import Session
from epp.wire.turns import Turn, TurnQueue
from epp.wire.watch import Watch

logger = logging.getLogger(__name__)

_SETTLE_S = 1.0


class Host(Protocol):
    """The part of the server that its connections use and share."""

    methods: Methods
    report: Report
    limits: Limits
    counters: Counters
    notices: Notices
    links: set[Link]
    idle: dict[Link, None]
    origins: Origins
    queue: TurnQueue

    def has_room(self, link: Link) -> bool:
        """Return whether ``link``, which is new, may stay."""


class Link(asyncio.Protocol):
    """One transport and its session, which never sees a clock or a socket. Owned by the event loop."""

    def __init__(self, server: Host) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.origin: Origin
        """The client's address, and the resources that its connections share."""
        self._transport: asyncio.Transport
        self._session: Session
        self._connection: Connection[GrpcHead]
        self._watch: Watch | None = None
        self._counted = True  # among the connections of its origin
        self._paused = False
        self._flushing: asyncio.Handle | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._draining = False
        self._resting = False  # nothing is read until ``resume``
        self._wait: asyncio.TimerHandle | None = None  # until it joins the queue
        self._backlog: deque[bytes] = deque()
        self._header_work = 0

    # What the transport calls

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # what create_server gives, under uvloop in name only
        server = self._server
        peer = _address(transport.get_extra_info("peername"))
        self.origin = server.origins.join(peer.rpartition(":")[0], self._loop.time())
        self._session = Session(server.methods, server.limits, server.counters, peer, self._wake, self.origin.places)
        self._connection = self._session.connection
        server.links.add(self)
        server.counters.connections += 1
        server.counters.connections_total += 1
        if not server.has_room(self):
            self._refuse()
            return
        self._watch = Watch(self, self._session, server.limits.handshake_s)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() != "h2":
            server.report(failed_alpn(transport))
            self._session.end(ConnectionFault(ErrorCode.INADEQUATE_SECURITY, "ALPN did not choose h2"))
        self.flush()

    @override
    def data_received(self, data: bytes) -> None:
        if self._resting:  # the transport may deliver bytes that it had already read
            self._backlog.append(data)
            return
        now = self._loop.time()
        turn = self.origin.turn
        if not self._header_work and (wait_s := self.origin.headers.wait(0, now)):  # what older connections owe
            self._backlog.append(data)
            self._rest(wait_s)
        elif turn.begin(now):
            self._work(data, now, turn)
        else:
            self._backlog.append(data)
            self._rest(0.0)

    @override
    def connection_lost(self, _exc: Exception | None) -> None:
        server = self._server
        for handle in (self._flushing, self._linger, self._wait):
            if handle:
                handle.cancel()
        if self._watch:
            self._watch.stop()
        server.queue.remove(self)
        server.links.discard(self)
        server.idle.pop(self, None)
        self._leave_origin()
        server.counters.connections -= 1
        self._session.end()
        if not self.lost.done():
            self.lost.set_result(None)

    @override
    def pause_writing(self) -> None:
        self._paused = True
        self._connection.pause(True)

    @override
    def resume_writing(self) -> None:
        self._paused = False
        self._connection.pause(False)
        self.flush()

    # What the server calls

    def drain(self) -> None:
        """Begin a graceful end."""
        self._draining = True
        self._connection.drain()
        self._loop.call_later(_SETTLE_S, self._on_settle_due)
        self.flush()

    def stop(self) -> None:
        """End the connection now, with a GOAWAY."""
        self._session.end(ConnectionFault(ErrorCode.NO_ERROR, "the server stops"))
        self.flush()
        self._transport.close()
        self._leave_origin()

    def abort(self) -> None:
        """End the connection at once, without a GOAWAY."""
        self._transport.abort()

    def resume(self, turn: Turn) -> None:
        """Go on reading where the connection stopped, until ``turn`` is over."""
        self._resting = False
        now = self._loop.time()
        goes_on = not self._session.unfinished or self._work(None, now, turn)
        while goes_on and self._backlog:
            goes_on = self._work(self._backlog.popleft(), now, turn)
        if goes_on and not self._transport.is_closing():
            self._transport.resume_reading()

    def swept(self, now: float) -> None:
        """Do what is due every few seconds: log new counts, and note that the connection is idle."""
        self._server.notices.look(now)
        if not self.in_use:
            self._server.idle[self] = None

    @property
    def closing(self) -> bool:
        """Whether it is about to end."""
        return self._transport.is_closing()

    @property
    def in_use(self) -> bool:
        """Whether any stream is open."""
        return bool(self._connection.streams)

    # Internal

    def _leave_origin(self) -> None:
        if self._counted:
            self._counted = False
            self._server.origins.leave(self.origin, self._loop.time())

    def _refuse(self) -> None:
        """Close a connection above the limit, with a GOAWAY that names the limit."""
        server, session = self._server, self._session
        most = server.limits.max_connections
        reason = f"{most} connections are open, which are the most, and no address has more than its own, all in use"
        server.notices.say("connections", f"connection of {session.peer} refused: {reason}", self._loop.time())
        session.end(ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, reason))
        self._transport.write(session.output(self._loop.time()))
        self._transport.close()

    def _work(self, data: bytes | None, now: float, turn: Turn) -> bool:
        """Take ``data`` in, or go on where the last turn ended; returns False when the connection stops reading."""
        session = self._session
        try:
            done = session.proceed(now, turn.over) if data is None else session.receive(data, now, turn.over)
        except Exception:  # a defect of ours must cost one connection, and be seen
            logger.exception("connection of %s ends by an internal error", session.peer)
            self._server.counters.connection_faults += 1
            self._transport.abort()
            return False
        self.flush()
        wait_s = 0.0
        if (work := self._connection.headers_read.work) != self._header_work:
            wait_s = self.origin.headers.wait(work - self._header_work, now)
            self._header_work = work
        if done and not wait_s and (session.turn_checked or not turn.over()):
            return True
        self._rest(wait_s)
        return False

    def _rest(self, wait_s: float) -> None:
        """Stop reading until the next turn, which begins after ``wait_s`` at the earliest."""
        if self._transport.is_closing():
            return
        server = self._server
        self._resting = True
        self._transport.pause_reading()
        if not wait_s:
            server.counters.turns_cut += 1
            server.queue.add(self)
            return
        server.counters.header_waits += 1
        share = server.limits.header_share
        text = f"connection of {self._session.peer} waits: decoding its headers takes {share:.0%} of a core"
        server.notices.say("headers", text, self._loop.time())
        self._wait = self._loop.call_later(wait_s, server.queue.add, self)

    def _wake(self) -> None:
        """Schedule one write, after all other work of this run: a handler has answered outside of a read."""
        if self._flushing is None:
            self._flushing = self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what the session has to send, as far as the transport takes it."""
        self._flushing = None
        session, connection, transport = self._session, self._connection, self._transport
        if transport.is_closing():
            return
        if session.overflowed:
            session.drop_overflowed()
        now = self._loop.time()
        while data := connection.output(now):
            transport.write(data)
            if self._paused:
                self._check_unread()
            if self._paused or len(data) < BATCH_BYTES:
                break
        if self._watch and (deadline := session.deadlines.next) is not None:
            self._watch.expect(deadline)
        if connection.closed:
            self._close_lingering()
        elif self._draining and connection.drained:
            transport.close()

    def _check_unread(self) -> None:
        """End the connection of a client that makes us answer control frames and does not read the answers."""
        if self._transport.get_write_buffer_size() > self._server.limits.max_unread_bytes + BATCH_BYTES:
            self._server.counters.floods[Flood.UNREAD] += 1
            self._server.counters.connection_faults += 1
            self._transport.abort()

    def _close_lingering(self) -> None:
        """Close, but read on for a moment: if input is unread at the close, the kernel drops our GOAWAY."""
        if self._linger is None:
            fault = self._connection.fault
            if fault is not None and fault.flood is not None:
                text = f"connection of {self._session.peer} ended: {fault}"
                self._server.notices.say(fault.flood.value, text, self._loop.time())
            self._linger = self._loop.call_later(self._server.limits.linger_s, self._transport.abort)
            try:
                if self._transport.can_write_eof():
                    self._transport.write_eof()
                else:
                    self._transport.close()
            except OSError:  # the client is gone already, and the loop has not reported it yet
                self._transport.abort()

    def _on_settle_due(self) -> None:
        if not self._transport.is_closing():
            self._connection.settle()
            self.flush()


def _address(peername: object) -> str:
    """Return ``10.0.0.1:50000`` or ``[::1]:50000``."""
    if not isinstance(peername, tuple):
        return str(peername or "")
    host, port = peername[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
