"""The options of ``tierwise check``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """``tierwise check``: reads a configuration, and serves nothing."""

    config_file: Path | None = None
    config_text: str | None = None
    strict: bool = False
    """Whether warnings are a failure."""
