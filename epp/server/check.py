"""What a picker would do, shown without serving: ``tierwise serve --check``, and ``tierwise check`` of a file alone."""

from __future__ import annotations

from epp.config.plan import Plan
from epp.config.wiring.build import plan_from
from epp.errors import ConfigError
from epp.ports.tls import ext_proc_certificate, metrics_certificate, metrics_context, server_context
from epp.printing.prose import Prose, console_for, show
from epp.runtime.logs import counted
from epp.server.options import ServeOptions
from epp.server.settings import Settings

NOWHERE = (
    "nothing says where the endpoints are: pass --endpoint HOST:PORT; in a cluster pass --pool-name, or "
    "--endpoint-selector and --endpoint-target-ports; or name a file-discovery plugin in dataLayer.discovery"
)


def check_serve(options: ServeOptions) -> int:
    """Show what ``tierwise serve`` would do with these flags, and open no port; return the exit status.

    Raises: ConfigError for what ``tierwise serve`` refuses at its start: a flag, the configuration, a certificate.
    """
    config = options.config
    plan = plan_from(config.file, config.inline, metrics_source=options.metrics_source)
    refuse_nowhere(plan, options.picker)
    _read_certificates(options.picker)
    show_plan(plan, "the flags and the configuration", options.notices)
    return 0


def refuse_nowhere(plan: Plan, picker: Settings) -> None:
    """Check that something says where the endpoints are. Raises: ConfigError if nothing does."""
    if not picker.endpoints and plan.discovery is None and not picker.cluster.has_endpoints:
        raise ConfigError(NOWHERE)


def show_plan(plan: Plan, what: str, notices: tuple[str, ...] = ()) -> int:
    """Print what a configuration does, and on standard error its warnings; return how many there are."""
    warnings = (*notices, *plan.warnings)
    show(console_for(), (Prose(line, hang=4) for line in plan.describe()))
    show(console_for(stderr=True), (Prose(f"warning: {warning}", hang=4) for warning in warnings))
    show(console_for(), [Prose(f"{what}: good, {counted(len(warnings), 'warning')}")])
    return len(warnings)


def _read_certificates(picker: Settings) -> None:
    """Read the files that the encryption of both ports needs. Raises: ConfigError for one that cannot be used."""
    if picker.tls is not None:
        server_context(picker.tls, ext_proc_certificate(picker.tls))
    if picker.metrics_tls is not None:
        metrics_context(picker.metrics_tls, metrics_certificate(picker.metrics_tls))
