"""Why a standalone router does not start."""

from epp.errors import ConfigError


class StartError(ConfigError):
    """The router cannot start as asked; the message is one sentence with the remedy, and nothing was left running."""
