"""The format of the commands' log: one line for each event that an operator would act on.

A line has a message and, where a sentence is not enough, fields (``extra={"fields": {...}}``). In JSON the fields
stand beside ``ts``, ``level``, ``logger`` and ``msg``, the keys of the Go picker's encoder. Clients cannot forge a log
line: control characters are escaped, and the further lines of a message are indented.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from typing_extensions import override

from epp.metrics.gauges import Reading
from epp.runtime.options import LogFormat, LogOptions

USERINFO = re.compile(r"(?<=://)[^\s/?#]*@")
"""Matches the name and password in a URL, which must never be shown."""
DEBUGGING = 4
"""The verbosity from which all log lines of our own packages are written."""
BURST, ANOTHER_EVERY_S = 50, 5.0
"""How many lines from one place in the code are written without a pause, and the interval of those after them. A
guess: the start log of fifty plugins passes, and a fault that repeats for an hour takes a few hundred lines."""
MAX_PLACES = 1000
MAX_MESSAGE = 16_384
"""Maximum length of a message, in characters."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def set_up(options: LogOptions) -> Repeats:
    """Write the log to standard error, and return the filter that counts the lines left out.

    Libraries log warnings and errors, and never less: their debug lines contain headers.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Json() if options.format is LogFormat.JSON else Console())
    handler.addFilter(repeats := Repeats())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    debugging = options.verbosity >= DEBUGGING
    ours = logging.DEBUG if debugging else logging.INFO if options.verbosity > 0 else logging.WARNING
    for package in ("epp", "scorers", "tierwise"):
        logging.getLogger(package).setLevel(ours)
    return repeats


class Repeats(logging.Filter):
    """Leaves out lines that repeat at one place in the code, and logs how many there were. Debug lines always pass.

    Invariant: a place writes at most ``BURST`` lines at once, and one every ``ANOTHER_EVERY_S`` after that.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.left_out = 0
        self._clock = clock
        self._places: dict[tuple[str, int, int], _Place] = {}

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.INFO:
            return True
        key = (record.pathname, record.lineno, record.levelno)
        now = self._clock()
        place = self._places.get(key)
        if place is None:
            if len(self._places) >= MAX_PLACES:
                self._places.clear()
            place = self._places[key] = _Place(now)
        if not place.allows(now):
            self.left_out += 1
            return False
        if place.left_out:
            record.msg, record.args = f"{record.getMessage()} ({place.left_out} lines like this were left out)", ()
            place.left_out = 0
        return True

    def readings(self) -> Iterator[Reading]:
        """Return the count for the metrics page."""
        text = "Lines of the log that were left out, since many like them came together."
        yield Reading("tierwise_log_lines_left_out", text, (), [((), self.left_out)], counter=True)


class _Place:
    """The token bucket of one place in the code."""

    __slots__ = ("left_out", "since", "tokens")

    def __init__(self, now: float) -> None:
        self.tokens = float(BURST)
        self.since = now
        self.left_out = 0

    def allows(self, now: float) -> bool:
        self.tokens = min(BURST, self.tokens + (now - self.since) / ANOTHER_EVERY_S)
        self.since = now
        if self.tokens < 1:
            self.left_out += 1
            return False
        self.tokens -= 1
        return True


class Console(logging.Formatter):
    """Writes lines such as ``2026-11-22T12:34:56.789Z WARNING epp.scrape: what happened key=value``."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={_shown(value)}" for name, value in fields_of(record).items())
        text = f"{_time(record)} {record.levelname:<7} {record.name}: {_plain(_message(record))}{fields}"
        return f"{text}\n{_plain(self.formatException(record.exc_info))}" if record.exc_info else text


class Json(logging.Formatter):
    """Writes one JSON object a line, for log collectors."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": _message(record),
        }
        line |= {name: value for name, value in fields_of(record).items() if name not in line}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", msgspec.json.encode(line).decode())


def counted(count: int, one: str, several: str = "") -> str:
    """Return ``1 endpoint`` or ``2 endpoints``; ``several`` is the plural where that is not ``one`` with an s."""
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


def fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    """Return the fields that stand beside the line's message."""
    fields = getattr(record, "fields", None)
    return fields if isinstance(fields, dict) else {}


def _message(record: logging.LogRecord) -> str:
    message = record.getMessage()
    return message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]}…"


def _shown(value: object) -> str:
    """Return a word or a number as it is, and any other value as JSON."""
    if isinstance(value, str) and re.fullmatch(r"[\w.:/@\[\],+-]+", value, re.ASCII):
        return value
    return _plain(msgspec.json.encode(value).decode())


def _plain(text: str) -> str:
    """Return ``text`` without control characters, with its further lines indented."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text).replace("\n", "\n    ")


def _time(record: logging.LogRecord) -> str:
    """Return the record's time as ISO 8601 in UTC, as the Go picker writes it."""
    at = datetime.fromtimestamp(record.created, tz=UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z"
