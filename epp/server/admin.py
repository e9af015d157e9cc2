"""The metrics port: the picker's counters, its liveness and its readiness.

Every client that reaches the picker can read this port, so internals are on another one (``epp.explain``).
"""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import Callable, Mapping

from aiohttp import web
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder

from epp.kube.readers import Guard
from epp.metrics.exposition import Exposition, Frozen
from epp.ports.door import Report, unreported
from epp.ports.http_port import HttpPort
from epp.server.readiness import Readiness

COMPRESS_FROM_BYTES = 4096
"""Shorter answers cost more to compress than to send. A guess."""


_REFUSED = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}}


class Admin:
    """An HTTP server for Prometheus and probes. Owner: the event loop that started it.

    The numbers are copied on the event loop and encoded in a thread, since a page with many model names takes longer
    than a request may wait.
    """

    def __init__(
        self,
        exposition: Exposition,
        readiness: Callable[[], Readiness],
        *,
        facts: Callable[[], Mapping[str, str]] = dict,
        guard: Guard | None = None,
        report: Report = unreported,
    ) -> None:
        """``facts`` are what ``/readyz?verbose`` adds, a line each.

        ``guard`` decides which clients may read ``/metrics``; None opens it to all. Probes are always open.

        ``report`` is called for each connection that fails before its first request.
        """
        self._exposition = exposition
        of_process = CollectorRegistry()
        self._of_process = [make(registry=of_process) for make in (ProcessCollector, PlatformCollector, GCCollector)]
        self._readiness, self._facts, self._guard = readiness, facts, guard
        self._port = HttpPort(report)
        self._tls: ssl.SSLContext | None = None

    def encrypt(self, context: ssl.SSLContext) -> None:
        """Serve TLS with ``context``; called before ``start``."""
        self._tls = context

    async def start(self, host: str, port: int) -> int:
        """Listen and return the port, which is a free one for 0. Raises: OSError if the port cannot be bound."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/metrics", self._metrics),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
            ]
        )
        return await self._port.open(app, host, port, self._tls)

    async def stop(self) -> None:
        """Close the port and every connection."""
        await self._port.close()

    async def _metrics(self, request: web.Request) -> web.Response:
        if self._guard is not None:
            status, sentence = await self._guard(request.method, request.path, request.headers.get("Authorization"))
            if status != 200:
                return web.Response(status=status, text=f"{sentence}\n", headers=_REFUSED.get(status))
        accept, encodings = request.headers.get("Accept", ""), request.headers.get("Accept-Encoding", "")
        for frozen in self._exposition.freezing():  # noqa: B007 - the last one is whole
            await asyncio.sleep(0)
        page, headers = await asyncio.to_thread(self._page, frozen, accept, "gzip" in encodings)
        return web.Response(body=page, headers=headers)

    def _page(self, frozen: Frozen, accept: str, compress: bool) -> tuple[bytes, dict[str, str]]:
        registry = CollectorRegistry()
        for collector in (frozen, *self._of_process):
            registry.register(collector)
        encode, content_type = choose_encoder(accept)
        page, headers = encode(registry), {"Content-Type": content_type}
        if compress and len(page) >= COMPRESS_FROM_BYTES:
            page = gzip.compress(page, compresslevel=1)
            headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        return page, headers

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        ready, sentence = self._readiness()
        facts = self._facts() if "verbose" in request.query else {}
        lines = (sentence, *(f"{name}={value}" for name, value in facts.items()))
        return web.Response(status=200 if ready else 503, text="".join(f"{line}\n" for line in lines))
