"""The options of the commands' log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class LogFormat(Enum):
    """The format in which log lines are written."""

    CONSOLE = "console"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """How much is logged, and in which format."""

    verbosity: int = 2
    """The value of ``--v``: 0 logs errors and warnings, 1 and 2 what operators need, 4 debug lines, 5 all lines."""
    format: LogFormat = LogFormat.CONSOLE
