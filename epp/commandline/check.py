"""The command ``tierwise check``: shows what the picker would build from a configuration, without serving."""

from __future__ import annotations

from epp.config.options import CheckOptions
from epp.config.wiring.build import plan_from
from epp.errors import ConfigError
from epp.printing.prose import Prose, console_for, show
from epp.runtime.logs import counted

DOUBTFUL = 1
"""The exit status for a configuration with warnings, where ``strict`` makes them count."""


def run_check(options: CheckOptions) -> int:
    """Run the command and return its exit status. Raises: ConfigError for a configuration that is refused."""
    if options.config.file is None and options.config.inline is None:
        raise ConfigError(
            "nothing says what to check: pass --config-file FILE or --config-text YAML; "
            "tierwise print default prints a configuration to begin with"
        )
    plan = plan_from(options.config.file, options.config.inline)
    show(console_for(), (Prose(line, hang=4) for line in plan.describe()))
    show(console_for(stderr=True), (Prose(f"warning: {warning}", hang=4) for warning in plan.warnings))
    what = options.config.file or "--config-text"
    show(console_for(), [Prose(f"{what}: good, {counted(len(plan.warnings), 'warning')}")])
    return DOUBTFUL if plan.warnings and options.strict else 0
