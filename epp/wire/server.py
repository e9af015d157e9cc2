"""The default transport: an ``asyncio.Protocol`` around each Session, all answers of one read in one write.

Rejected: to gather small reads or writes for up to 1 ms while several calls are open (by delaying writes, pausing
reads, or sleeping before the next poll). Behind Envoy, frames gather without a timer as the load grows: at 64
connections a read brings ten messages or more. With 8 and 16 connections, a timer cost 7 to 38 % more CPU per request
and a quarter to half of the throughput; in streamed answers, half as many reads or writes cost as much as all. Writes
take long by the wall clock, since the process that they wake gets the core, but they are 2 to 7 % of the CPU time.
Source: an echo handler behind Envoy 1.40, 2 virtual cores, November 2026.
"""

from __future__ import annotations

import asyncio
import logging
import ssl

from epp.ports.door import Door, Report, open_door, unreported
from epp.wire.http2.counters import Counters, Statistics
from epp.wire.http2.limits import Limits
from epp.wire.link import Link
from epp.wire.notices import Notices
from epp.wire.origins import Origins
from epp.wire.service import Methods
from epp.wire.turns import Clocks, Turn, TurnQueue

logger = logging.getLogger(__name__)


class WireServer:
    """Serves ``methods`` over HTTP/2, with TLS or prior knowledge. Owned by the event loop that calls ``start``."""

    def __init__(
        self,
        methods: Methods,
        *,
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
        report: Report = unreported,
        clocks: Clocks | None = None,
    ) -> None:
        """``report`` is called for connections that fail in their handshake; ``clocks`` measure turns."""
        self.methods = methods
        self.report = report
        self.limits = limits or Limits()
        self.counters = Counters()
        self.notices = Notices(self.limits, self.counters)
        self.links: set[Link] = set()
        clocks = clocks or Clocks()
        self.origins = Origins(self.limits, clocks)
        self.queue = TurnQueue(Turn(clocks), lambda work: asyncio.get_running_loop().call_soon(work))
        self.idle: dict[Link, None] = {}
        """The connections without a stream at their last sweep, the one that has been idle for longest first."""
        self._tls = tls
        self._door: Door | None = None
        if tls:
            tls.set_alpn_protocols(["h2"])

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port, which ``port=0`` leaves to the system. Raises: OSError."""
        self._door = await open_door(
            lambda: Link(self),
            host,
            port,
            tls=self._tls,
            report=self.report,
            http1=False,
            max_handshakes=self.limits.max_handshakes,
        )
        return self._door.port

    async def drain(self, timeout_s: float) -> None:
        """Refuse new calls, wait for the open ones, and close; cancel those that are open after ``timeout_s``."""
        if self._door:
            self._door.close()
        links = list(self.links)
        for link in links:
            link.drain()
        if links:
            await asyncio.wait([link.lost for link in links], timeout=timeout_s)
        await self.stop()

    async def stop(self) -> None:
        """Close every connection at once, and cancel the open calls."""
        if self._door:
            self._door.close()
            self._door.abandon()
        links = list(self.links)
        for link in links:
            link.stop()
        if links:
            await asyncio.wait([link.lost for link in links], timeout=self.limits.linger_s)
        for link in self.links.copy():  # a client that does not read would delay this forever
            link.abort()

    def has_room(self, link: Link) -> bool:
        """Return whether ``link``, which is new, may stay; if necessary, another connection is closed for it."""
        if self.counters.connections > self.limits.max_connections:
            least_missed = self._displaced_by(link)
            if least_missed is None:
                self.counters.refused_connections += 1
                return False
            self.idle.pop(least_missed, None)
            self.counters.displaced_connections += 1
            least_missed.stop()
        self.idle[link] = None
        return True

    def _displaced_by(self, link: Link) -> Link | None:
        """Return the connection to close in favor of ``link``, or None if ``link`` is to be refused.

        It is one of the address with the most connections: the one that has been without streams for longest, or else
        any, unless ``link`` comes from such an address itself. An address can thus never displace another one.
        """
        most = self.origins.most_connections()
        for other in list(self.idle):
            if other.in_use or other.closing:
                del self.idle[other]
            elif other.origin.connections == most:
                return other
        if link.origin.connections == most:
            return None
        return next((other for other in self.links if other.origin.connections == most and not other.closing), None)

    def statistics(self) -> Statistics:
        """Return the server's counts as they are now."""
        return self.counters.snapshot()
