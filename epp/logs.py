"""How the commands write their log: one line where something happened that an operator would act on."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import msgspec
from typing_extensions import override

from epp.options import LogFormat, LogOptions

DEBUGGING = 4
"""The verbosity from which everything is shown."""


def set_up(options: LogOptions) -> None:
    """Write the log to standard error. Libraries are heard from warnings up, unless somebody debugs."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Json() if options.format is LogFormat.JSON else Console())
    debugging = options.verbosity >= DEBUGGING
    logging.basicConfig(level=logging.DEBUG if debugging else logging.WARNING, handlers=[handler], force=True)
    ours = logging.DEBUG if debugging else logging.INFO if options.verbosity > 0 else logging.WARNING
    for package in ("epp", "scorers", "tierwise"):
        logging.getLogger(package).setLevel(ours)
    logging.getLogger("hpack").setLevel(logging.WARNING)  # else a line for every header of every request


class Console(logging.Formatter):
    """``12:34:56.789 WARNING epp.scrape: ...``, the time in UTC."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        text = (
            f"{_time(record):%H:%M:%S}.{record.msecs:03.0f} {record.levelname:<7} {record.name}: {record.getMessage()}"
        )
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


class Json(logging.Formatter):
    """One object a line, for log collectors."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "ts": _time(record).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, tz=UTC)
