"""``tierwise standalone``: turns its options into those of the proxy and of the picker beside it."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

from epp.config.plan import Plan
from epp.config.wiring.build import plan_from
from epp.errors import ConfigError
from epp.extproc.exchange import ExchangeSettings
from epp.runtime import logs
from epp.runtime.memory import collect_rarely
from epp.runtime.signals import Stop, until_signalled
from epp.scrape.pace import Pace
from epp.server.app import App, Settings
from epp.server.command import announce, followed, run
from epp.standalone.options import ResponseMode, StandaloneOptions
from epp.standalone.run import LOOPBACK, standalone
from epp.standalone.warnings import told_of_lessons, warned_of_waits
from epp.wire.http2.limits import Limits

PROXY_MESSAGES = "envoy_data_plane"
if find_spec(PROXY_MESSAGES) is None:  # checked here, since the import waits until the ports are known to be free
    raise ModuleNotFoundError(f"No module named {PROXY_MESSAGES!r}", name=PROXY_MESSAGES)

ENDPOINTS_NAMED = 2
"""The endpoints per decision if the configuration does not set it: the pick, and one fallback."""
SLACK_BYTES = 1 << 16
"""The part of an ext-proc message beside the request's body."""


def run_standalone(options: StandaloneOptions) -> int:
    """Run the command and return its exit status."""
    repeats = logs.set_up(options.log)

    async def start(options: StandaloneOptions) -> App:
        app = await start_picker(options)
        app.expose(repeats.readings)
        collect_rarely()
        return app

    async def work(stop: Stop) -> None:
        if options.config_file is None and options.config_text is None:
            refuse_nowhere(options, None)  # missing endpoints are reported before ports that are taken
        await standalone(options, start, stop)

    return run("tierwise standalone", lambda: until_signalled(work))


async def start_picker(options: StandaloneOptions) -> App:
    """Start the picker and return it. Raises: ConfigError, also if no endpoints are configured."""
    watched = followed(options.config_file if options.watch_config else None)

    def read(before: Plan | None = None) -> Plan:
        plan = plan_from(options.config_file, options.config_text, picks=ENDPOINTS_NAMED, by_model=True, before=before)
        return told_of_lessons(warned_of_waits(plan), options)

    plan = read()
    announce(plan, options.notices, options.endpoints)
    refuse_nowhere(options, plan)
    app = App(plan, replace(settings(options), config_file=watched, reread=read))
    await app.start()
    return app


def refuse_nowhere(options: StandaloneOptions, plan: Plan | None) -> None:
    """Check that the flags or ``plan`` configure endpoints. Raises: ConfigError if neither does."""
    discovered = plan is not None and plan.discovery is not None
    if not options.endpoints and options.endpoints_file is None and not discovered:
        raise ConfigError("nothing says where the endpoints are: pass --endpoint HOST:PORT, or --endpoints-file FILE")


def settings(options: StandaloneOptions) -> Settings:
    """Return the picker's settings from the options."""
    lean = options.response_mode is ResponseMode.LEAN
    return Settings(
        pool_name=options.pool_name,
        host=LOOPBACK,
        grpc_port=options.grpc_port,
        metrics_host=options.host,
        metrics_port=options.metrics_port,
        debug=options.debug,
        options=options,
        transport=options.transport,
        # Envoy draws the route, and so the sample, before it asks the picker.
        exchange=ExchangeSettings(
            access_log=lean,
            may_ask=lean,
            clear_route_cache=False,
            max_request_bytes=options.max_request_bytes,
            error_format=options.error_format,
            emit_endpoint_scores=options.emit_endpoint_scores,
            tell_decisions=options.tell_decisions,
            ask_kvengine=options.ask_kvengine,
        ),
        max_held_bytes=options.max_held_bytes,
        limits=Limits(
            max_receive_message_bytes=options.max_request_bytes + SLACK_BYTES, max_buffered_bytes=options.max_held_bytes
        ),
        pace=Pace(busy_s=options.refresh_metrics_interval_s, staleness_s=options.metrics_staleness_threshold_s),
        endpoints=options.endpoints,
        endpoints_file=options.endpoints_file,
        sample_ratio=options.sample_rate if lean else 1.0,
        index_snapshot=options.index_snapshot,
        index_snapshot_interval_s=options.index_snapshot_interval_s,
        tracing=options.tracing,
    )
