"""A whole picker: the parts that decide (``epp.server.core``) and the ports, files and tasks around them.

They are started and stopped in order.

discovery ─► pool ─► ledger, prefix cache, scraper (listeners)
transport ─► ext-proc, access log, health ─► director ─► pool, ledger, telemetry
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from importlib.metadata import version

from epp.config.plan import Plan
from epp.discovery.base import Discovery
from epp.explain.explainer import Explainer
from epp.explain.options import DebugOptions
from epp.explain.server import DebugServer
from epp.extproc import service
from epp.kvevents.feed import Feed, open_feed
from epp.metrics.exposition import Exposition
from epp.metrics.gauges import ReadingSource
from epp.pool.index_keeper import IndexKeeper, finish_in_time
from epp.ports.certificates import Certificate, certificate_readings
from epp.ports.claim import listening
from epp.ports.failures import FailedConnections, Port
from epp.ports.tls import ext_proc_certificate, metrics_certificate, metrics_context
from epp.runtime.background import Chore, Uncaught
from epp.runtime.logs import counted
from epp.scrape.scraper import Scraper
from epp.server.admin import Admin
from epp.server.cluster import Cluster, open_cluster
from epp.server.core import Core
from epp.server.endpoints import open_endpoints, open_scraper, unspoken
from epp.server.health import Health
from epp.server.quiet import wait_until_left, wait_until_quiet
from epp.server.readiness import Readiness, facts, readiness
from epp.server.reload import ConfigReload, PlanSource
from epp.server.saved_index import open_saved_index
from epp.server.settings import Settings, Transport
from epp.server.stream_counts import StreamCounts
from epp.server.transport import Tls, open_server
from epp.tokens.opened import OpenedSource
from epp.wire.http2.limits import Limits
from epp.wire.readings import wire_readings

log = logging.getLogger(__name__)

EXPIRE_EVERY_S = 1.0


class App:
    """A running picker. Owner: the event loop; ``start`` and ``stop`` are called once."""

    def __init__(
        self,
        plan: Plan,
        settings: Settings,
        *,
        source: PlanSource | None = None,
        options: object = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make a picker that follows changes of ``source`` and shows ``options`` on its debug port.

        ``clock`` times picks, their leases and scrapes; it may jump.
        """
        self.core = core = Core(plan, settings, clock)
        self.pool, self.ledger, self.director, self.telemetry = core.pool, core.ledger, core.director, core.telemetry
        self.health = Health(self._listed, self._elected if settings.cluster.election is not None else None)
        self.grpc_port = self.health_port = self.metrics_port = self.debug_port = 0
        self._settings = settings
        self._counts_connections = settings.transport is not Transport.GRPCIO
        self._limits = Limits(
            max_receive_message_bytes=settings.max_message_bytes, max_buffered_bytes=settings.max_held_bytes
        )
        self._source, self._options = source, options
        self._cluster: Cluster | None = None
        self._reload: ConfigReload | None = None
        self._discovery: Discovery | None = None
        self._scraper: Scraper | None = None
        self._certificates: list[Certificate] = []
        self._failed = FailedConnections()
        self._tokens = OpenedSource(core.tokens, core.pool.candidates)
        self._keeping: IndexKeeper | None = None
        self.feed: Feed | None = None
        """Follows the engines' KV events; None if no plugin uses them."""
        self._open = False  # whether all ports are
        self._closing = AsyncExitStack()

    async def start(self) -> None:
        """Start everything and serve.

        Raises: ConfigError that names the port that cannot be bound; nothing is left open then.
        """
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._closing = stack.pop_all()
        self._open = True
        if self._keeping is not None:
            self._keeping.started()

    @property
    def changes_responses(self) -> bool:
        """Whether responses may be changed: as the plan says, and by rewrites that a cluster may have at any time."""
        return self.core.plan.changes_responses or self._settings.cluster.pool is not None

    def expose(self, source: ReadingSource) -> None:
        """Add the readings of ``source`` to the metrics."""
        self.telemetry.gauge_source(source)

    def drain(self) -> None:
        """Report not ready from now on; requests are served as before."""
        self.health.drain()
        if self._cluster is not None:
            self._cluster.drain()

    async def retire(self, timeout_s: float) -> None:
        """Report not ready at once, and serve until no stream has begun for a while, or for ``timeout_s`` at most.

        A proxy needs a moment until its next health check shows that the picker is not ready.
        """
        self.drain()
        await wait_until_quiet(self._server.statistics, timeout_s, counts_connections=self._counts_connections)

    async def serve_out(self, timeout_s: float) -> None:
        """Report not ready at once, and serve until no proxy is connected, or for ``timeout_s`` at most."""
        self.drain()
        await wait_until_left(self._server.statistics, timeout_s, counts_connections=self._counts_connections)

    async def stop(self, drain_timeout_s: float) -> None:
        """Report not ready, refuse the requests that wait, let streams in progress end, and close everything.

        Streams that are open after ``drain_timeout_s`` are cancelled.
        """
        self.drain()
        self.core.gate.close()
        cut: list[int] = []  # asked for before the server's own timer, which is set after this one
        timer = asyncio.get_running_loop().call_later(
            drain_timeout_s, lambda: cut.append(self._server.statistics().streams)
        )
        await self._server.drain(drain_timeout_s)
        timer.cancel()
        if self._keeping is not None and (write := self._keeping.save()) is not None:
            await finish_in_time(write)
        await self._closing.aclose()
        streams = sum(cut)
        log.info("stopped; %s cut", f"{counted(streams, 'stream')} {'was' if streams == 1 else 'were'}")

    async def _start(self, stack: AsyncExitStack) -> None:
        loop, uncaught = asyncio.get_running_loop(), Uncaught()
        uncaught.watch(loop)
        stack.callback(uncaught.leave, loop)
        self.expose(uncaught.readings)
        if self.core.traces is not None:
            stack.push_async_callback(asyncio.to_thread, self.core.traces.stop)
        self._keeping = keeping = open_saved_index(self._settings.snapshot, self.core, stack)
        if keeping is not None:
            self.expose(keeping.readings)
        self._cluster = await open_cluster(self._settings, self.core, os.environ, stack, self._able)
        self._discovery = await open_endpoints(self._settings, self.core, self._cluster, stack)
        self._follow_kv_events(stack)
        if self.core.plan.scrape is not None:
            self._scraper = await open_scraper(self._settings.pace, self.core, self.core.plan.scrape, stack)
        self._tokens.use(self.core.plan.tokens)
        stack.push_async_callback(self._tokens.close)
        stack.push_async_callback(Chore("expire-leases", self._expire).stop)
        await self._serve_requests(stack)
        await self._follow_config(stack)
        await self._serve_metrics(stack)
        if self._settings.debug is not None and self._settings.debug.enabled:
            await self._debug(stack, self._settings.debug)

    async def _serve_requests(self, stack: AsyncExitStack) -> None:
        """Open the ports that proxies use: ext-proc with the access log and health, and health alone."""
        settings = self._settings
        of_requests = service.methods(self.director, settings.exchange, self.core.clock, self.core.bodies)
        if settings.stream_metrics:
            streams = StreamCounts(asyncio.get_running_loop().time)
            of_requests = streams.watching(of_requests)
            self.expose(streams.readings)
        tls = None
        if settings.tls is not None:
            tls = Tls(settings.tls, ext_proc_certificate(settings.tls))
            self._show(stack, tls.certificate, reload=settings.tls.reload)
        methods = {**of_requests, **self.core.access_log.methods(), **self.health.methods()}
        report = self._failed.at(Port.EXT_PROC, encrypted=tls is not None)
        self._server = open_server(settings.transport, methods, self._limits, tls, report)
        self.expose(wire_readings(self._server.statistics))
        self.expose(self._failed.readings)
        stack.push_async_callback(self._server.stop)
        self.grpc_port = await listening(self._server.start, settings.host, settings.grpc_port, "--grpc-port")
        if settings.health_port is not None:
            report = self._failed.at(Port.HEALTH, encrypted=False)
            beside = open_server(settings.transport, self.health.methods(), self._limits, None, report)
            stack.push_async_callback(beside.stop)
            self.health_port = await listening(beside.start, settings.host, settings.health_port, "--grpc-health-port")

    async def _serve_metrics(self, stack: AsyncExitStack) -> None:
        """Open the port that Prometheus and probes use."""
        settings = self._settings
        exposition = Exposition(
            self.telemetry,
            self.pool,
            self.ledger,
            build_ref=version("tierwise"),
            deprecated=settings.deprecated_metrics,
        )
        admin = Admin(
            exposition,
            self._readiness,
            facts=lambda: facts(self.telemetry, self.pool, self._reload),
            guard=self._cluster.readers.verdict if self._cluster is not None and self._cluster.readers else None,
            report=self._failed.at(Port.METRICS, encrypted=settings.metrics_tls is not None),
        )
        stack.push_async_callback(admin.stop)
        self.expose(certificate_readings(self._certificates))
        if settings.metrics_tls is not None:
            certificate = metrics_certificate(settings.metrics_tls)
            admin.encrypt(metrics_context(settings.metrics_tls, certificate))
            self._show(stack, certificate, reload=settings.metrics_tls.tls.reload)
        self.metrics_port = await listening(
            admin.start, settings.metrics_host or settings.host, settings.metrics_port, "--metrics-port"
        )

    async def _debug(self, stack: AsyncExitStack, debug: DebugOptions) -> None:
        server = DebugServer(
            Explainer(self.director, self.pool, lambda: self.core.plan), self.pool, self.ledger, lambda: self.core.plan,
            options=self._options, scrapes=self._scraper.states if self._scraper is not None else None,
            max_request_bytes=self._settings.exchange.max_request_bytes,
        )  # fmt: skip
        stack.push_async_callback(server.stop)
        self.debug_port = await server.open(debug)

    def _show(self, stack: AsyncExitStack, certificate: Certificate, *, reload: bool) -> None:
        """Add ``certificate`` to the metrics, and follow its files if ``reload``."""
        self._certificates.append(certificate)
        if reload and certificate.folder is not None:
            stack.push_async_callback(Chore(f"follow {certificate.flag}", certificate.follow).stop)

    def _follow_kv_events(self, stack: AsyncExitStack) -> None:
        precise, cache = self.core.plan.precise, self.core.precise
        if precise is None or cache is None:
            return
        self.feed = feed = open_feed(cache, precise.parameters.kv_events_config, self.pool)
        feed.start()
        stack.push_async_callback(feed.stop)
        self.expose(feed.readings)

    def _readiness(self) -> Readiness:
        troubles, role = (self._cluster.troubles, self._cluster.role) if self._cluster is not None else ((), "")
        scraped, unfit = self.core.plan.scrape is not None, unspoken(self._discovery, self.core.plan.protocols)
        return readiness(
            self.health, self._discovery, self.pool, scraped=scraped, troubles=troubles, role=role, unfit=unfit
        )

    def _able(self) -> bool:
        return self._open and self.health.able

    def _elected(self) -> bool:
        return self._cluster is not None and self._cluster.elected

    def _listed(self) -> bool:
        """Whether the endpoints are known, fixed or discovered, and the parsers speak their protocol."""
        found = self._discovery
        return found is None or (found.loaded and not unspoken(found, self.core.plan.protocols))

    async def _follow_config(self, stack: AsyncExitStack) -> None:
        if (source := self._source) is None or source.file is None:
            return
        self._reload = reload = ConfigReload(
            source.file, lambda: source.read(before=self.core.plan), self._use, logged=self.core.plan.lines
        )
        reload.start()
        stack.push_async_callback(reload.stop)
        self.expose(reload.readings)

    def _use(self, plan: Plan) -> Iterator[None]:
        rubble = self.core.use(plan)
        self._tokens.use(plan.tokens)
        return rubble

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_EVERY_S)
            self.core.expire()
