"""The command ``tierwise standalone``: starts the picker, and the proxy around it."""

from __future__ import annotations

from importlib.util import find_spec

from epp.config.plan import Plan
from epp.config.wiring.build import plan_from
from epp.errors import ConfigError
from epp.runtime import logs
from epp.runtime.memory import collect_rarely
from epp.runtime.signals import Stop, until_signalled
from epp.server.app import App
from epp.server.command import announce, followed, run
from epp.server.reload import PlanSource
from epp.server.settings import Settings
from epp.standalone.options import StandaloneOptions
from epp.standalone.run import standalone
from epp.standalone.warnings import with_learning_notes, with_wait_warnings

PROXY_MESSAGES = "envoy_data_plane"
if find_spec(PROXY_MESSAGES) is None:  # checked here, since the import waits until the ports are known to be free
    raise ModuleNotFoundError(f"No module named {PROXY_MESSAGES!r}", name=PROXY_MESSAGES)

ENDPOINTS_NAMED = 2
"""The endpoints per decision if the configuration does not set it: the pick, and one fallback."""


def run_standalone(options: StandaloneOptions) -> int:
    """Run the command and return its exit status."""
    repeats = logs.set_up(options.log)

    async def start(options: StandaloneOptions) -> App:
        app = await start_picker(options)
        app.expose(repeats.readings)
        collect_rarely()
        return app

    async def work(stop: Stop) -> None:
        if options.config.file is None and options.config.inline is None:
            refuse_nowhere(options.picker, None)  # missing endpoints are reported before ports that are taken
        await standalone(options, start, stop)

    return run("tierwise standalone", lambda: until_signalled(work))


async def start_picker(options: StandaloneOptions) -> App:
    """Start the picker and return it. Raises: ConfigError, also if no endpoints are configured."""
    config = options.config

    def read(before: Plan | None = None) -> Plan:
        plan = plan_from(config.file, config.inline, picks=ENDPOINTS_NAMED, by_model=True, before=before)
        return with_learning_notes(with_wait_warnings(plan), options.proxy)

    source = PlanSource(followed(config), read)
    plan = read()
    announce(plan, options.notices, options.picker.endpoints)
    refuse_nowhere(options.picker, plan)
    app = App(plan, options.picker, source=source, options=options)
    await app.start()
    return app


def refuse_nowhere(picker: Settings, plan: Plan | None) -> None:
    """Check that the flags or ``plan`` configure endpoints. Raises: ConfigError if neither does."""
    discovered = plan is not None and plan.discovery is not None
    if not picker.endpoints and picker.endpoints_file is None and not discovered:
        raise ConfigError("nothing says where the endpoints are: pass --endpoint HOST:PORT, or --endpoints-file FILE")
