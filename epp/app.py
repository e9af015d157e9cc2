"""A whole picker: every part made, wired, started and stopped in order. The one place that knows them all.

discovery ─► pool ─► ledger, prefix cache, scraper (listeners)
transport ─► ext-proc, access log, health ─► director ─► pool, ledger, telemetry
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from epp import extproc
from epp.accesslog import AccessLog
from epp.admin import Admin
from epp.certificates import Certificate, certificate_readings
from epp.chore import Chore, Uncaught
from epp.config.plan import Plan, ScrapeParameters
from epp.decision import Cause, Outcome
from epp.director import Director
from epp.discovery.file import FileDiscovery
from epp.errors import ConfigError
from epp.explain.explainer import Explainer
from epp.explain.server import DebugServer
from epp.flow.gate import Gate
from epp.health import Health
from epp.ledger import Ledger
from epp.options import DebugOptions, Transport
from epp.pool import Endpoint, Pool
from epp.ports import listening
from epp.readiness import readiness
from epp.readings import (
    access_log_readings,
    director_readings,
    prefix_readings,
    profile_readings,
    rewrite_readings,
    wire_readings,
)
from epp.reload import ConfigReload
from epp.resolve import resolve
from epp.retiring import until_nobody_comes
from epp.scrape.scraper import Scraper
from epp.settings import Settings
from epp.streams import StreamCounts
from epp.telemetry import Exposition, Source, Telemetry
from epp.tls import ext_proc_certificate, metrics_certificate, metrics_context
from epp.tracing.opening import open_tracer
from epp.tracing.queue import TraceQueue
from epp.tracing.settings import TraceSettings
from epp.tracing.tracer import Tracer
from epp.transport import Tls, open_server
from scorers.prefix_cache import PrefixCache

__all__ = ["App", "Settings"]

log = logging.getLogger(__name__)

EXPIRE_EVERY_S = 1.0


class App:
    """A running picker. Owner: the event loop; ``start`` and ``stop`` are called once."""

    def __init__(self, plan: Plan, settings: Settings, *, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` is what picks, their leases and scrapes are timed by; it need not go on evenly."""
        self._clock = clock
        self.pool = Pool(settings.pool_name)
        # A random start: reports of picks that an earlier picker made may still arrive, and must be nobody's.
        self.ledger = Ledger(self.pool, first_id=random.getrandbits(62))
        self.telemetry = Telemetry(
            sample_ratio=settings.sample_ratio, producers={p.name: p.type_name for p in plan.profile.producers}
        )
        self._traces: TraceQueue | None = None
        self._gate = Gate(self.pool, lambda labels: self.telemetry.requests(labels).labels, clock)
        self.director = Director(
            plan.parser,
            plan.profile,
            self.pool,
            self.ledger,
            self.telemetry,
            admission=self._gate.use(plan.admission),
            objectives=plan.admission.objectives,
            tracer=self._tracer(settings.tracing),
            clock=clock,
        )
        self.access_log = AccessLog(self.director)
        self.health = Health(self._listed)
        self.grpc_port = self.health_port = self.metrics_port = self.debug_port = 0
        self._plan, self._settings = plan, settings
        self._sees_response_headers = plan.changes_responses
        self._discovery: FileDiscovery | None = None
        self._scraper: Scraper | None = None
        self._certificates: list[Certificate] = []
        self._closing = AsyncExitStack()
        self._listen(None, plan.prefix_cache)

    async def start(self) -> None:
        """Serve. Raises: ConfigError, which names the port that cannot be had; nothing is left open then."""
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._closing = stack.pop_all()

    def _tracer(self, settings: TraceSettings | None) -> Tracer | None:
        opened = open_tracer(settings) if settings is not None else None
        if opened is None:
            return None
        tracer, self._traces = opened
        self.telemetry.gauge_source(tracer.readings)
        return tracer

    @property
    def changes_responses(self) -> bool:
        """Whether it may have something to change in any response."""
        return self._plan.changes_responses

    def expose(self, source: Source) -> None:
        """Show what ``source`` reads among the metrics."""
        self.telemetry.gauge_source(source)

    def use(self, plan: Plan) -> None:
        """Serve by ``plan`` from the next request on; what is known of the endpoints' caches stays where its tiers do.

        Raises: ConfigError for what takes a restart; nothing has changed then.
        """
        before = self._plan
        for path, old, new in (
            ("dataLayer.discovery", before.discovery, plan.discovery),
            ("dataLayer.sources", before.scrape, plan.scrape),
        ):
            if old != new:
                raise ConfigError(f"{path}: has changed, which takes a restart; restart, or put it back")
        if self._settings.exchange.may_ask and plan.changes_responses and not self._sees_response_headers:
            raise ConfigError(
                "inferenceModelRewrites, or a plugin that sets response headers: the first of them takes a restart, "
                "after which the proxy sends the headers of responses; restart, or take it out"
            )
        everyone, known = self.pool.candidates(), before.prefix_cache
        if plan.prefix_cache is not None and known is not None:
            if known.take_over(plan.prefix_cache.producers, everyone):
                plan = replace(plan, prefix_cache=known)
            else:
                log.warning("the producers' tiers have changed: what the endpoints hold is learned anew")
        if plan.prefix_cache is not known:
            self._listen(known, plan.prefix_cache)
        plan.profile.failures = before.profile.failures
        plan.rewrites.count_on(before.rewrites)
        self.telemetry.producers = {p.name: p.type_name for p in plan.profile.producers}
        admission = self._gate.use(plan.admission)
        self.director.use(plan.parser, plan.profile, admission, plan.admission.objectives)
        self._plan = plan

    def _listen(self, known: PrefixCache | None, now: PrefixCache | None) -> None:
        """Tell ``now`` of the endpoints, and ``known`` no more."""
        if known is not None:
            self.pool.listeners.remove(known)
        if now is not None:
            self.pool.listeners.append(now)
            for candidate in self.pool.candidates():
                now.endpoint_added(candidate)

    def drain(self) -> None:
        """Be not ready from now on; requests are served as before."""
        self.health.drain()

    async def retire(self, timeout_s: float) -> None:
        """Be not ready at once, and serve on until nobody has come for a while, for at most ``timeout_s``: a proxy that
        checks the picker's health needs a moment to hear of it."""
        self.drain()
        counts_connections = self._settings.transport is not Transport.GRPCIO
        await until_nobody_comes(self._server.statistics, timeout_s, counts_connections=counts_connections)

    async def stop(self, drain_timeout_s: float) -> None:
        """Be not ready at once, send away who waits, let the streams under way end, for at most that long, and close
        everything."""
        self.drain()
        self._gate.close()
        await self._server.drain(drain_timeout_s)
        await self._closing.aclose()

    async def _start(self, stack: AsyncExitStack) -> None:
        settings, loop, uncaught = self._settings, asyncio.get_running_loop(), Uncaught()
        uncaught.watch(loop)
        stack.callback(uncaught.leave, loop)
        self.telemetry.gauge_source(uncaught.readings)
        if self._traces is not None:
            stack.push_async_callback(asyncio.to_thread, self._traces.stop)
        await self._list_endpoints(stack)
        if self._plan.scrape is not None:
            await self._scrape(stack, self._plan.scrape)
        stack.push_async_callback(Chore("expire-leases", self._expire).stop)
        of_requests = extproc.methods(self.director, settings.exchange, self._clock)
        if settings.stream_metrics:
            streams = StreamCounts(asyncio.get_running_loop().time)
            of_requests = streams.watching(of_requests)
            self.telemetry.gauge_source(streams.readings)
        methods = {
            **of_requests,
            **self.access_log.methods(),
            **self.health.methods(),
        }
        tls = None
        if settings.tls is not None:
            tls = Tls(settings.tls, ext_proc_certificate(settings.tls))
            self._show(stack, tls.certificate, reload=settings.tls.reload)
        self._server = open_server(settings.transport, methods, settings.limits, tls)
        stack.push_async_callback(self._server.stop)
        self.grpc_port = await listening(self._server.start, settings.host, settings.grpc_port, "--grpc-port")
        if settings.health_port is not None:
            beside = open_server(settings.transport, self.health.methods(), settings.limits, None)
            stack.push_async_callback(beside.stop)
            self.health_port = await listening(beside.start, settings.host, settings.health_port, "--grpc-health-port")
        self._expose()
        await self._follow_config(stack)
        exposition = Exposition(
            self.telemetry,
            self.pool,
            self.ledger,
            build_ref=version("tierwise"),
            deprecated=settings.deprecated_metrics,
        )
        admin = Admin(
            exposition,
            lambda: readiness(self.health, self._discovery, self.pool, scraped=self._plan.scrape is not None),
        )
        stack.push_async_callback(admin.stop)
        if settings.metrics_tls is not None:
            certificate = metrics_certificate(settings.metrics_tls)
            admin.encrypt(metrics_context(settings.metrics_tls, certificate))
            self._show(stack, certificate, reload=settings.metrics_tls.tls.reload)
        self.metrics_port = await listening(admin.start, settings.metrics_host, settings.metrics_port, "--metrics-port")
        if settings.debug is not None and settings.debug.enabled:
            await self._debug(stack, settings.debug)

    async def _debug(self, stack: AsyncExitStack, debug: DebugOptions) -> None:
        server = DebugServer(
            Explainer(self.director, self.pool, lambda: self._plan), self.pool, self.ledger, lambda: self._plan,
            options=self._settings.options, scrapes=self._scraper.states if self._scraper is not None else None,
            max_request_bytes=self._settings.exchange.max_request_bytes,
        )  # fmt: skip
        stack.push_async_callback(server.stop)
        self.debug_port = await server.open(debug)

    def _show(self, stack: AsyncExitStack, certificate: Certificate, *, reload: bool) -> None:
        """Have ``certificate`` among the metrics, and followed if asked to."""
        self._certificates.append(certificate)
        if reload and certificate.folder is not None:
            stack.push_async_callback(Chore(f"follow {certificate.flag}", certificate.follow).stop)

    async def _list_endpoints(self, stack: AsyncExitStack) -> None:
        settings, found = self._settings, self._plan.discovery
        if settings.endpoints:
            self.pool.replace([Endpoint(address) for address in dict.fromkeys(await resolve(settings.endpoints))])
        elif settings.endpoints_file is not None:
            await self._follow(stack, settings.endpoints_file, watch=True)
        elif found is not None:
            await self._follow(stack, Path(found.path), watch=found.watch_file)

    async def _follow(self, stack: AsyncExitStack, path: Path, *, watch: bool) -> None:
        self._discovery = discovery = FileDiscovery(self.pool, path, watch=watch)
        await discovery.start()
        stack.push_async_callback(discovery.stop)
        self.telemetry.gauge_source(discovery.readings)

    def _listed(self) -> bool:
        """Whether anybody has said yet where the endpoints are."""
        return self._discovery is None or self._discovery.loaded

    async def _follow_config(self, stack: AsyncExitStack) -> None:
        file, reread = self._settings.config_file, self._settings.reread
        if file is None or reread is None:
            return
        reload = ConfigReload(file, lambda: reread(before=self._plan), self.use)
        reload.start()
        stack.push_async_callback(reload.stop)
        self.telemetry.gauge_source(reload.readings)

    async def _scrape(self, stack: AsyncExitStack, parameters: ScrapeParameters) -> None:
        self._scraper = scraper = Scraper(
            self.pool, self.ledger, parameters, self._settings.pace, ended=self._ended, clock=self._clock
        )
        await scraper.start()
        stack.push_async_callback(scraper.stop)
        self.telemetry.gauge_source(scraper.readings)

    def _expose(self) -> None:
        add = self.telemetry.gauge_source
        add(wire_readings(self._server.statistics))
        add(director_readings(self.director))
        add(self._gate.readings)
        add(access_log_readings(self.access_log))
        add(certificate_readings(self._certificates))
        add(profile_readings(lambda: self._plan.profile))
        add(rewrite_readings(lambda: self._plan.rewrites))
        add(prefix_readings(lambda: self._plan.prefix_cache, self.pool))

    async def _expire(self) -> None:
        """Take back the picks whose end nobody reported."""
        while True:
            await asyncio.sleep(EXPIRE_EVERY_S)
            for pick_id, cause in self.ledger.expire(self._clock()):
                self._ended(pick_id, cause)

    def _ended(self, pick_id: int, cause: Cause) -> None:
        self.director.ended(pick_id, Outcome(cause))
