"""``tierwise serve``: the picker beside a proxy that somebody else runs."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import uvloop

from epp.config.plan import Plan
from epp.config.wiring.build import plan_from
from epp.errors import ConfigError
from epp.extproc.exchange import ExchangeSettings
from epp.metrics.gauges import Source
from epp.runtime import logs
from epp.runtime.background import Chore
from epp.runtime.followed_files import FollowedFiles
from epp.runtime.logs import counted
from epp.runtime.memory import collect_rarely, give_back_unused, keep_freed_memory
from epp.runtime.signals import Stop, until_signalled
from epp.scrape.pace import Pace
from epp.server.app import App, Settings
from epp.server.options import ServeOptions
from epp.wire.http2.limits import Limits

log = logging.getLogger(__name__)

USAGE_ERROR = 2


def run_serve(options: ServeOptions) -> int:
    """Run the command; the process's exit status."""
    repeats = logs.set_up(options.log)
    return run("tierwise serve", lambda: serve(options, repeats.readings))


def run(command: str, work: Callable[[], Awaitable[None]]) -> int:
    """Run ``work`` on an event loop; what cannot be had is one sentence and an exit status."""
    keep_freed_memory()
    try:
        uvloop.run(_beside_chores(work))
    except ConfigError as error:
        print(f"{command}: {error}", file=sys.stderr)
        return USAGE_ERROR
    return 0


async def _beside_chores(work: Callable[[], Awaitable[None]]) -> None:
    memory = Chore("give-back-memory", give_back_unused)
    try:
        await work()
    finally:
        await memory.stop()


async def serve(options: ServeOptions, *sources: Source) -> None:
    """Serve until a signal, then drain; ``sources`` are shown among the metrics. Raises: ConfigError."""
    watched = followed(options.config_file if options.watch_config else None)

    read = partial(plan_from, options.config_file, options.config_text, metrics_source=options.metrics_source)
    plan = read()
    announce(plan, options.notices, options.endpoints, options.remarks)
    if not options.endpoints and plan.discovery is None:
        raise ConfigError(nowhere(options.pool_name))
    app = App(plan, replace(settings(options), config_file=watched, reread=read))

    async def work(stop: Stop) -> None:
        loop = asyncio.get_running_loop()
        await app.start()
        for source in sources:
            app.expose(source)
        collect_rarely()
        log.info("%s", encryption(options))
        log.info(
            "serving ext-proc on port %d, health on %d, metrics on %d; %s",
            app.grpc_port, app.health_port, app.metrics_port, counted(len(app.pool), "endpoint"),
        )  # fmt: skip
        await stop.wait()
        log.info(
            "stopping: not ready from now on; %g s for proxies to leave and streams to end", options.drain_timeout_s
        )
        began = loop.time()
        await app.retire(options.drain_timeout_s / 3)  # most of the time belongs to the streams under way
        await app.stop(max(0.0, options.drain_timeout_s - (loop.time() - began)))

    await until_signalled(work)


def encryption(options: ServeOptions) -> str:
    """What each port speaks, in words for the log."""
    ext_proc = metrics = "plaintext"
    if options.tls is not None:
        folder = options.tls.cert_path
        ext_proc = f"TLS with {'a self-signed certificate' if folder is None else f'the certificate in {folder}'}"
    if options.metrics_tls is not None:
        metrics = f"TLS with the certificate in {options.metrics_tls.cert_dir}"
    return f"ext-proc speaks {ext_proc}, health plaintext, metrics {metrics}"


def nowhere(pool_name: str) -> str:
    """What to say to somebody who gave no endpoints, and perhaps a pool of Kubernetes."""
    pool = ""
    if pool_name != ServeOptions().pool_name:
        pool = f" (--pool-name={pool_name} is a name in metrics only: InferencePools are not read)"
    return (
        f"nothing says where the endpoints are{pool}: pass --endpoint HOST:PORT, or name a file-discovery plugin in "
        "dataLayer.discovery"
    )


def settings(options: ServeOptions) -> Settings:
    """What the flags say of the picker."""
    return Settings(
        pool_name=options.pool_name,
        host=options.host,
        grpc_port=options.grpc_port,
        health_port=options.grpc_health_port,
        metrics_host=options.host,
        metrics_port=options.metrics_port,
        transport=options.transport,
        tls=options.tls,
        metrics_tls=options.metrics_tls,
        debug=options.debug,
        options=options,
        exchange=ExchangeSettings(
            max_request_bytes=options.max_request_bytes,
            error_format=options.error_format,
            any_subset=not options.disable_endpoint_subset_filter,
            emit_endpoint_scores=options.emit_endpoint_scores,
            tell_decisions=options.tell_decisions,
            ask_kvengine=options.ask_kvengine,
        ),
        max_held_bytes=options.max_held_bytes,
        limits=Limits(max_receive_message_bytes=options.grpc_max_recv_bytes, max_buffered_bytes=options.max_held_bytes),
        pace=Pace(busy_s=options.refresh_metrics_interval_s, staleness_s=options.metrics_staleness_threshold_s),
        endpoints=options.endpoints,
        index_snapshot=options.index_snapshot,
        index_snapshot_interval_s=options.index_snapshot_interval_s,
        tracing=options.tracing,
        deprecated_metrics=options.emit_deprecated_metrics,
        stream_metrics=options.enable_grpc_stream_metrics,
    )


def followed(path: Path | None) -> FollowedFiles | None:
    """``path``, as it is before it is read."""
    if path is None:
        return None
    file = FollowedFiles(path)
    file.seen()
    return file


def announce(plan: Plan, notices: tuple[str, ...], endpoints: tuple[str, ...], remarks: tuple[str, ...] = ()) -> None:
    """Say in the log what was understood."""
    for remark in remarks:
        log.info("%s", remark)
    if endpoints and plan.discovery is not None:
        log.warning(
            "--endpoint says where the endpoints are, so dataLayer.discovery has no effect; leave out one of the two"
        )
    for notice in (*notices, *plan.warnings):
        log.warning("%s", notice)
    for line in plan.describe():
        log.info("%s", line)
