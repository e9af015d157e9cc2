"""One connection of the default transport: where a session meets its socket, the clock and the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable
from typing import Protocol, cast

from typing_extensions import override

from epp.ports.door import Report, failed_alpn
from epp.wire.http2.counters import Counters
from epp.wire.http2.errors import ConnectionFault, ErrorCode
from epp.wire.http2.floods import Flood
from epp.wire.http2.limits import Limits
from epp.wire.http2.outbound import BATCH_BYTES
from epp.wire.notices import Notices
from epp.wire.service import Methods
from epp.wire.session import Session
from epp.wire.turns import Turn

logger = logging.getLogger(__name__)

_SWEEP_S = 5.0
_SETTLE_S = 1.0


class Host(Protocol):
    """The server, as one of its connections sees it: what all of them share."""

    methods: Methods
    report: Report
    limits: Limits
    counters: Counters
    clock: Callable[[], float]
    notices: Notices
    links: set[Link]
    idle: dict[Link, None]
    addresses: Counter[str]

    def has_room(self, link: Link) -> bool:
        """Whether ``link``, which is new, may stay."""


class Link(asyncio.Protocol):
    """One transport and its session. The session never sees a clock or a socket; this is where both are."""

    def __init__(self, server: Host) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self._transport: asyncio.Transport
        self.address = ""
        """The address that the client comes from, without its port."""
        self._session: Session
        self._paused = False
        self._flushing: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._sweep: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._draining = False
        self._turn = Turn(server.limits.header_share, server.clock)
        self._resting: asyncio.Handle | None = None  # until the connection's next turn, in which it goes on reading
        self._backlog: deque[bytes] = deque()

    # What the transport calls

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # what create_server gives, under uvloop in name only
        server = self._server
        peer = _address(transport.get_extra_info("peername"))
        self._session = Session(server.methods, server.limits, server.counters, peer, self._wake)
        self.address = peer.rpartition(":")[0]
        server.links.add(self)
        server.addresses[self.address] += 1
        server.counters.connections += 1
        server.counters.connections_total += 1
        if not server.has_room(self):
            self._refuse()
            return
        self._sweep = self._loop.call_later(server.limits.handshake_s, self._on_handshake_due)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() != "h2":
            server.report(failed_alpn(transport))
            self._session.end(ConnectionFault(ErrorCode.INADEQUATE_SECURITY, "ALPN did not choose h2"))
        self._flush()

    @override
    def data_received(self, data: bytes) -> None:
        if self._resting is not None:  # a transport may have had some more
            self._backlog.append(data)
            return
        now = self._loop.time()
        self._turn.begin(now)
        self._work(data, now)

    @override
    def eof_received(self) -> bool:
        return False

    @override
    def connection_lost(self, _exc: Exception | None) -> None:
        for handle in (self._flushing, self._timer, self._sweep, self._linger, self._resting):
            if handle:
                handle.cancel()
        self._server.links.discard(self)
        self._server.idle.pop(self, None)
        self._server.addresses[self.address] -= 1
        if not self._server.addresses[self.address]:
            del self._server.addresses[self.address]
        self._server.counters.connections -= 1
        self._session.end()
        if not self.lost.done():
            self.lost.set_result(None)

    @override
    def pause_writing(self) -> None:
        self._paused = True
        self._session.connection.pause(True)

    @override
    def resume_writing(self) -> None:
        self._paused = False
        self._session.connection.pause(False)
        self._flush()

    # What the server calls

    def drain(self) -> None:
        """Begin a graceful end."""
        self._draining = True
        self._session.connection.drain()
        self._loop.call_later(_SETTLE_S, self._on_settle_due)
        self._flush()

    def stop(self) -> None:
        """End the connection now, saying so."""
        self._session.end(ConnectionFault(ErrorCode.NO_ERROR, "the server stops"))
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """End the connection without another word."""
        self._transport.abort()

    @property
    def closing(self) -> bool:
        """Whether it is about to end."""
        return self._transport.is_closing()

    @property
    def in_use(self) -> bool:
        """Whether any stream is open."""
        return bool(self._session.connection.streams)

    # Ours

    def _refuse(self) -> None:
        """Close a connection that is one too many, saying so."""
        server, session = self._server, self._session
        most = server.limits.max_connections
        reason = f"{most} connections are open, which are the most, and no address has more than its own, all in use"
        server.notices.say("connections", f"connection of {session.peer} refused: {reason}", self._loop.time())
        session.end(ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, reason))
        self._transport.write(session.output(self._loop.time()))
        self._transport.close()

    def _work(self, data: bytes | None, now: float) -> bool:
        """Take ``data`` in, or go on where the last turn ended; returns False when this turn is over."""
        session, turn = self._session, self._turn
        try:
            done = session.proceed(now, turn.over) if data is None else session.receive(data, now, turn.over)
        except Exception:  # a defect of ours must cost one connection, and be seen
            logger.exception("connection of %s ends by an internal error", session.peer)
            self._server.counters.connection_faults += 1
            self._transport.abort()
            return False
        self._flush()
        wait_s = turn.header_wait(session.connection.header_work, now)
        if done and not wait_s and not turn.over():
            return True
        self._rest(wait_s)
        return False

    def _rest(self, wait_s: float) -> None:
        """Read nothing until the other connections had their turn, and for ``wait_s`` at least."""
        if self._transport.is_closing():
            return
        counters = self._server.counters
        self._transport.pause_reading()
        if wait_s:
            counters.header_waits += 1
            share = self._server.limits.header_share
            text = f"connection of {self._session.peer} waits: decoding its headers takes {share:.0%} of a core"
            self._server.notices.say("headers", text, self._loop.time())
            self._resting = self._loop.call_later(wait_s, self._resume)
        else:
            counters.turns_cut += 1
            self._resting = self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        """Take the next turn."""
        self._resting = None
        now = self._loop.time()
        self._turn.begin(now)
        goes_on = self._work(None, now)
        while goes_on and self._backlog:
            goes_on = self._work(self._backlog.popleft(), now)
        if goes_on and not self._transport.is_closing():
            self._transport.resume_reading()

    def _wake(self) -> None:
        """A handler answered outside of a read: write once, after everything else that runs now."""
        if self._flushing is None:
            self._flushing = self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = None
        session, transport = self._session, self._transport
        if transport.is_closing():
            return
        session.drop_overflowed()
        now = self._loop.time()
        while data := session.output(now):
            transport.write(data)
            if self._paused:
                self._check_unread()
            if self._paused or len(data) < BATCH_BYTES:
                break
        if (deadline := session.deadlines.next) is not None and deadline < self._timer_at:
            self._set_timer(deadline)
        if session.connection.closed:
            self._close_lingering()
        elif self._draining and session.connection.drained:
            transport.close()

    def _check_unread(self) -> None:
        """A client that reads nothing still makes us answer its control frames."""
        if self._transport.get_write_buffer_size() > self._server.limits.max_unread_bytes + BATCH_BYTES:
            self._server.counters.floods[Flood.UNREAD] += 1
            self._server.counters.connection_faults += 1
            self._transport.abort()

    def _close_lingering(self) -> None:
        """Close, but read on for a moment: closing with unread input makes the kernel throw our GOAWAY away."""
        if self._linger is None:
            fault = self._session.connection.fault
            if fault is not None and fault.flood is not None:
                text = f"connection of {self._session.peer} ended: {fault}"
                self._server.notices.say(fault.flood.value, text, self._loop.time())
            self._linger = self._loop.call_later(self._server.limits.linger_s, self._transport.abort)
            try:
                if self._transport.can_write_eof():
                    self._transport.write_eof()
                else:
                    self._transport.close()
            except OSError:  # the client is gone already, and the loop has not said so yet
                self._transport.abort()

    def _set_timer(self, when: float) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._loop.call_at(when, self._on_deadline)

    def _on_deadline(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        self._session.expire(self._loop.time())
        self._flush()

    def _on_settle_due(self) -> None:
        if not self._transport.is_closing():
            self._session.connection.settle()
            self._flush()

    def _on_handshake_due(self) -> None:
        if not self._session.connection.greeted:
            self._transport.abort()
            return
        self._sweep = self._loop.call_later(_SWEEP_S, self._on_sweep)

    def _on_sweep(self) -> None:
        now = self._loop.time()
        self._session.drop_stalled(now)
        self._session.drop_silent(now)
        self._flush()
        self._server.notices.look(now)
        if not self.in_use:
            self._server.idle[self] = None
        self._sweep = self._loop.call_later(_SWEEP_S, self._on_sweep)


def _address(peername: object) -> str:
    """Return ``10.0.0.1:50000`` or ``[::1]:50000``."""
    if not isinstance(peername, tuple):
        return str(peername or "")
    host, port = peername[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
