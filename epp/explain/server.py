"""The debug port: what the picker knows, and what it would do.

It shows internals without a password, so it listens on loopback unless configured otherwise.

Web pages in a browser on the same machine reach loopback, too. The requests that a page can send without a preflight
change nothing here, and their answers are protected: a request that names this server by anything but an address or
``localhost`` uses a DNS name that was pointed here, and is refused.
"""

from __future__ import annotations

import ipaddress
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web

from epp.config.plan import Plan
from epp.decision import RequestHead
from epp.explain.effective import effective, plugin_states
from epp.explain.endpoints import pool_state
from epp.explain.explainer import Explainer
from epp.explain.explanation import AnsweredBy, Explanation
from epp.explain.options import ANY_SERVED, DEBUG_PORT, DebugOptions
from epp.explain.pool_state import PoolState
from epp.pool.ledger import Ledger
from epp.pool.pool import Pool
from epp.pool.seat import EngineMetrics
from epp.ports.claim import listening
from epp.ports.http_port import HttpPort
from epp.scrape.state import ScrapeState

log = logging.getLogger(__name__)

HEADERS_OF_OURS = frozenset({"host", "accept", "accept-encoding", "connection", "user-agent", "content-length"})
"""Headers of the query itself, which are not part of the request to explain."""


class DebugServer:
    """The HTTP server of the debug port. Owner: the event loop that started it."""

    def __init__(
        self,
        explainer: Explainer,
        pool: Pool,
        ledger: Ledger,
        plan: Callable[[], Plan],
        *,
        options: object = None,
        scrapes: Callable[[], Mapping[str, ScrapeState]] | None = None,
        max_request_bytes: int = 32 << 20,
    ) -> None:
        self._explainer = explainer
        self._pool = pool
        self._ledger = ledger
        self._plan = plan
        self._options = options
        self._scrapes = scrapes
        self._max_request_bytes = max_request_bytes
        self._port = HttpPort()

    async def open(self, debug: DebugOptions) -> int:
        """Listen on the port of ``debug`` and return it. Raises: ConfigError if that fails."""
        port = await self._open(debug)
        host = f"[{debug.host}]" if ":" in debug.host else debug.host
        if debug.port is None and port != DEBUG_PORT:
            log.warning(
                "port %d is taken, so internals are on port %d; for this picker: tierwise explain --url http://%s:%d",
                DEBUG_PORT, port, host, port,
            )  # fmt: skip
        else:
            log.info("internals are on port %d: tierwise explain --url http://%s:%d", port, host, port)
        return port

    async def _open(self, debug: DebugOptions) -> int:
        if debug.port is not None:
            return await listening(self.start, debug.host, debug.port, "--debug-port")
        try:
            return await self.start(debug.host, DEBUG_PORT)
        except OSError:  # the default port is taken, which must not prevent the start
            return await listening(self.start, debug.host, 0, "--debug-host")

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port, which is a free one for 0. Raises: OSError when the port cannot be bound."""
        app = web.Application(client_max_size=self._max_request_bytes, middlewares=[_named_by_address])
        app.add_routes(
            [
                web.get("/debug/endpoints", self._endpoints),
                web.get("/debug/config", self._config),
                web.get("/debug/plugins/state", self._plugins),
                web.post("/debug/explain", self._explain),
                web.get("/debug/explain", _how),
                web.get("/", _how),
            ]
        )
        return await self._port.open(app, host, port)

    async def stop(self) -> None:
        """Close the port and every connection."""
        await self._port.close()

    async def _endpoints(self, _: web.Request) -> web.Response:
        return self._answer(pool_state(self._pool, self._ledger, self._plan(), self._scrapes))

    async def _config(self, _: web.Request) -> web.Response:
        return _json(effective(self._plan(), self._options))

    async def _plugins(self, _: web.Request) -> web.Response:
        return _json(plugin_states(self._plan()))

    async def _explain(self, request: web.Request) -> web.Response:
        body = await request.read()
        if request.query.get("model") == ANY_SERVED:
            body = self._explainer.with_served_model(body)
        headers = {k.lower(): v for k, v in request.headers.items() if k.lower() not in HEADERS_OF_OURS}
        headers[":path"] = request.query.get("path", "/v1/completions")
        subset = request.query.get("subset")
        allowed = None if subset is None else frozenset(entry.strip() for entry in subset.split(",") if entry.strip())
        head = RequestHead(headers, allowed)
        token_ids = await self._explainer.token_ids(head, body)
        return self._answer(self._explainer.explain(head, body, token_ids))

    def _answer(self, said: PoolState[EngineMetrics] | Explanation) -> web.Response:
        return _json(msgspec.structs.replace(said, answered_by=AnsweredBy(self._pool.name, os.getpid())))


async def _how(_: web.Request) -> web.Response:
    return web.Response(
        text="GET /debug/endpoints      every endpoint: loads, requests in flight, index, scraping\n"
        "GET /debug/config         the configuration in effect\n"
        "GET /debug/plugins/state  what plugins keep\n"
        "POST /debug/explain       a request's body: where it would go, and why; nothing is changed by it.\n"
        "                          ?path=/v1/chat/completions (default /v1/completions), ?subset=10.0.0.7:8000,...\n"
        "                          ?model=served for a body without a model: the first that is served here\n"
        "                          headers are taken as the request's\n"
    )


@web.middleware
async def _named_by_address(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    if not is_address(request.host):
        return web.Response(status=403, text="name this server by its address, or as localhost\n")
    return await handler(request)


def is_address(host: str) -> bool:
    """Return whether ``host``, perhaps with a port, is an IP address or ``localhost``."""
    name = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.rpartition(":")[0] or host
    if name.lower() == "localhost":
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _json(value: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")
