"""The reason why a standalone router does not start."""

from epp.errors import ConfigError


class StartError(ConfigError):
    """The router cannot start as requested; the message is one sentence with the remedy, and no process is left."""
