"""The command ``tierwise check``: shows what the picker would build from a configuration, without serving."""

from __future__ import annotations

from epp.config.options import CheckOptions
from epp.config.wiring.build import plan_from
from epp.errors import ConfigError
from epp.server.check import show_plan

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
    warnings = show_plan(plan, str(options.config.file or "--config-text"))
    return DOUBTFUL if warnings and options.strict else 0
