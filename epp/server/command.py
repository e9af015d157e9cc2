"""The command ``tierwise serve``: the picker beside a proxy that the operator runs."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from functools import partial

import uvloop

from epp.config.options import ConfigOptions
from epp.config.plan import Plan
from epp.config.wiring.build import plan_from
from epp.errors import ConfigError
from epp.metrics.gauges import ReadingSource
from epp.runtime import logs
from epp.runtime.background import Chore
from epp.runtime.followed_files import FollowedFiles
from epp.runtime.logs import counted
from epp.runtime.memory import collect_rarely, give_back_unused, keep_freed_memory
from epp.runtime.signals import Stop, until_signalled
from epp.server.app import App
from epp.server.check import check_serve, refuse_nowhere
from epp.server.options import ServeOptions
from epp.server.proxy_admin import ProxyAdmin
from epp.server.reload import PlanSource
from epp.server.settings import Settings

log = logging.getLogger(__name__)

USAGE_ERROR = 2


def run_serve(options: ServeOptions) -> int:
    """Run the command and return its exit status. Raises: ConfigError with ``--check`` for what it would refuse."""
    if options.check:
        return check_serve(options)
    repeats = logs.set_up(options.log)
    return run("tierwise serve", lambda: serve(options, repeats.readings))


def run(command: str, work: Callable[[], Awaitable[None]]) -> int:
    """Run ``work`` on an event loop and return the exit status; a refusal is printed as one sentence."""
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


async def serve(options: ServeOptions, *sources: ReadingSource) -> None:
    """Serve until a signal, then drain; the readings of ``sources`` are added to the metrics. Raises: ConfigError."""
    config, picker = options.config, options.picker
    read = partial(plan_from, config.file, config.inline, metrics_source=options.metrics_source)
    source = PlanSource(followed(config), read)
    plan = read()
    announce(plan, (*options.notices, *selected_twice(plan, picker)), picker.endpoints, options.remarks)
    refuse_nowhere(plan, picker)
    app = App(plan, picker, source=source, options=options)

    async def work(stop: Stop) -> None:
        loop = asyncio.get_running_loop()
        await app.start()
        for source in sources:
            app.expose(source)
        collect_rarely()
        log.info("%s", encryption(picker))
        log.info(
            "serving ext-proc on port %d, health on %d, metrics on %d; %s",
            app.grpc_port, app.health_port, app.metrics_port, counted(len(app.pool), "endpoint"),
        )  # fmt: skip
        await stop.wait()
        log.info(
            "stopping: not ready from now on; %g s for proxies to leave and streams to end", options.drain_timeout_s
        )
        began = loop.time()
        if options.proxy_admin_port:  # whose clients have no other picker, and must be told to leave by the proxy
            if not await ProxyAdmin(options.proxy_admin_port).let_clients_leave():
                log.warning(
                    "the proxy's admin port %d does not answer, so its clients are not told to leave; "
                    "--proxy-admin-port must be that of an Envoy in this pod", options.proxy_admin_port,
                )  # fmt: skip
            await app.serve_out(options.drain_timeout_s)
        else:
            await app.retire(options.drain_timeout_s / 3)  # most of the time belongs to the streams under way
        await app.stop(max(0.0, options.drain_timeout_s - (loop.time() - began)))

    await until_signalled(work)


def selected_twice(plan: Plan, picker: Settings) -> tuple[str, ...]:
    """Return a warning if both a flag and the configuration select the endpoints, which is not meant."""
    if picker.cluster.pods is None or plan.discovery is None:
        return ()
    warning = (
        "dataLayer.discovery says where the endpoints are, so --endpoint-selector has no effect; "
        "leave out one of the two"
    )
    return (warning,)


def encryption(picker: Settings) -> str:
    """Return a sentence for the log about the encryption of each port."""
    ext_proc = metrics = "plaintext"
    if picker.tls is not None:
        folder = picker.tls.cert_path
        ext_proc = f"TLS with {'a self-signed certificate' if folder is None else f'the certificate in {folder}'}"
    if picker.metrics_tls is not None:
        metrics = f"TLS with the certificate in {picker.metrics_tls.cert_dir}"
    return f"ext-proc speaks {ext_proc}, health plaintext, metrics {metrics}"


def followed(config: ConfigOptions) -> FollowedFiles | None:
    """Return the file of ``config`` as it is before it is read; None if changes of it are not followed."""
    if config.file is None or not config.watch:
        return None
    file = FollowedFiles(config.file)
    file.seen()
    return file


def announce(plan: Plan, notices: tuple[str, ...], endpoints: tuple[str, ...], remarks: tuple[str, ...] = ()) -> None:
    """Log the configuration as it was understood, and its warnings."""
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
