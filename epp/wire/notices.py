"""Log lines about bounds that clients reach: at most one a minute for each bound, whatever the clients do."""

from __future__ import annotations

import logging

from epp.wire.http2.counters import Counters
from epp.wire.http2.limits import Limits

logger = logging.getLogger(__name__)

EVERY_S = 60.0

_COUNTED = {
    "refused_streams": "refused: {limits.max_concurrent_streams} streams of one connection and {limits.max_streams} "
    "of all are the most",
    "silent_streams": "ended: no message came on them in {limits.first_message_s:g} s",
    "crowded_out_streams": "ended: more than {limits.max_buffered_bytes} bytes are buffered (--max-held-bytes), and "
    "their connections do not read, or do not end their messages",
}
"""Counters of streams that are checked every few seconds, and the log line for each."""


class Notices:
    """Writes log lines, and never two about one bound within ``EVERY_S``. Owner: one server."""

    def __init__(self, limits: Limits, counters: Counters) -> None:
        self._limits = limits
        self._counters = counters
        self._said_at: dict[str, float] = {}
        self._said: dict[str, int] = {}

    def say(self, bound: str, text: str, now: float) -> None:
        """Log ``text`` about ``bound``, unless a line about the same bound was written in the last minute."""
        if now - self._said_at.get(bound, float("-inf")) >= EVERY_S:
            self._said_at[bound] = now
            logger.warning("%s", text)

    def look(self, now: float) -> None:
        """Log a line for each counter that grew."""
        for name, text in _COUNTED.items():
            count = getattr(self._counters, name)
            new = count - self._said.get(name, 0)
            if new and now - self._said_at.get(name, float("-inf")) >= EVERY_S:
                self._said[name] = count
                self.say(name, f"{new} streams were {text.format(limits=self._limits)}", now)
