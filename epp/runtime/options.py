"""The options of the log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class LogFormat(Enum):
    """How a log line is written."""

    CONSOLE = "console"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """How much is logged, and how."""

    verbosity: int = 2
    """As ``--v``: 0 errors and warnings, 1 and 2 what an operator wants, 4 debugging, 5 every message."""
    format: LogFormat = LogFormat.CONSOLE
