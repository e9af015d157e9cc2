"""The default transport: an ``asyncio.Protocol`` around each Session, all answers of one read in one write.

Rejected: to gather small reads or writes for up to 1 ms while several calls are open (by holding writes, pausing reads,
or sleeping before the next poll). Behind Envoy frames gather by themselves as the load grows: at 64 connections a read
brings ten messages or more. With 8 and 16 connections gathering by a timer cost 7 to 38 % more CPU per request and a
quarter to half of the throughput; in streamed answers half the reads or writes cost as much as all. Writes take long
by the wall clock, since the reader that they wake gets the core, but are 2 to 7 % of the process's CPU.
Source: an echo handler behind Envoy 1.40, 2 virtual cores, November 2026.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import cast

from epp.wire.counters import Counters, Statistics
from epp.wire.door import Door, Report, failed_alpn, nobody, open_door
from epp.wire.errors import ConnectionFault, ErrorCode
from epp.wire.floods import Flood
from epp.wire.limits import Limits
from epp.wire.outbound import BATCH_BYTES
from epp.wire.service import Methods
from epp.wire.session import Session

logger = logging.getLogger(__name__)

_SWEEP_S = 5.0
_SETTLE_S = 1.0


class WireServer:
    """Serves ``methods`` over HTTP/2, with TLS or prior knowledge. Owned by the event loop that starts it."""

    def __init__(
        self,
        methods: Methods,
        *,
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
        report: Report = nobody,
    ) -> None:
        """``report`` hears of the connections that fail before they are any."""
        self.methods = methods
        self.report = report
        self.limits = limits or Limits()
        self.counters = Counters()
        self.links: set[_Link] = set()
        self._tls = tls
        self._door: Door | None = None
        if tls:
            tls.set_alpn_protocols(["h2"])

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port, which ``port=0`` leaves to the system. Raises: OSError."""
        self._door = await open_door(lambda: _Link(self), host, port, tls=self._tls, report=self.report, http1=False)
        return self._door.port

    async def drain(self, timeout_s: float) -> None:
        """Take no new calls, let the open ones end, and close; what is open after ``timeout_s`` is cancelled."""
        if self._door:
            self._door.close()
        links = list(self.links)
        for link in links:
            link.drain()
        if links:
            await asyncio.wait([link.lost for link in links], timeout=timeout_s)
        await self.stop()

    async def stop(self) -> None:
        """Close every connection at once; open calls are cancelled."""
        if self._door:
            self._door.close()
            self._door.abandon()
        links = list(self.links)
        for link in links:
            link.stop()
        if links:
            await asyncio.wait([link.lost for link in links], timeout=self.limits.linger_s)
        for link in self.links.copy():  # a client that does not read would hold us up for ever
            link.abort()

    def statistics(self) -> Statistics:
        """Return what this server has done."""
        return self.counters.snapshot()


class _Link(asyncio.Protocol):
    """One transport and its session. The session never sees a clock or a socket; this is where both are."""

    def __init__(self, server: WireServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self._transport: asyncio.Transport
        self._session: Session
        self._paused = False
        self._flushing: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._sweep: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._draining = False

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # what create_server gives, under uvloop in name only
        server = self._server
        peer = _address(transport.get_extra_info("peername"))
        self._session = Session(server.methods, server.limits, server.counters, peer, self._wake)
        server.links.add(self)
        server.counters.connections += 1
        server.counters.connections_total += 1
        self._sweep = self._loop.call_later(server.limits.handshake_s, self._on_handshake_due)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() != "h2":
            server.report(failed_alpn(transport))
            self._session.end(ConnectionFault(ErrorCode.INADEQUATE_SECURITY, "ALPN did not choose h2"))
        self._flush()

    def data_received(self, data: bytes) -> None:
        session = self._session
        try:
            session.receive(data, self._loop.time())
        except Exception:  # a defect of ours must cost one connection, and be seen
            logger.exception("connection of %s ends by an internal error", session.peer)
            self._server.counters.connection_faults += 1
            self._transport.abort()
            return
        self._flush()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _exc: Exception | None) -> None:
        for handle in (self._flushing, self._timer, self._sweep, self._linger):
            if handle:
                handle.cancel()
        self._server.links.discard(self)
        self._server.counters.connections -= 1
        self._session.end()
        if not self.lost.done():
            self.lost.set_result(None)

    def pause_writing(self) -> None:
        self._paused = True
        self._session.connection.pause(True)

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

    # Ours

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
        if (deadline := session.next_deadline) is not None and deadline < self._timer_at:
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
        self._session.drop_stalled(self._loop.time())
        self._flush()
        self._sweep = self._loop.call_later(_SWEEP_S, self._on_sweep)


def _address(peername: object) -> str:
    """Return ``10.0.0.1:50000`` or ``[::1]:50000``."""
    if not isinstance(peername, tuple):
        return str(peername or "")
    host, port = peername[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
