"""The options of a configuration, and of ``tierwise check``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigOptions:
    """The source of the configuration: a file, a text, or the default profile if both are None."""

    file: Path | None = None
    inline: str | None = None
    """The configuration itself (``--config-text``). It may contain secrets, so no page shows it."""
    watch: bool = True
    """Whether changes of ``file`` take effect without a restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """The options of ``tierwise check``, which reads a configuration and serves nothing."""

    config: ConfigOptions = ConfigOptions()
    strict: bool = False
    """Whether warnings are a failure."""
