"""Skips the events that a stream sends before its answer begins, since they come before the prompt is computed.

Source: OpenAI's Responses API, as vLLM speaks it: ``response.created`` and ``response.in_progress`` come at once.
Comments of server-sent events keep connections alive.
"""

from __future__ import annotations

import re

EVENTS = frozenset({b"response.created", b"response.in_progress", b"response.queued"})
LONGEST = max(len(b"event: " + name + b"\r") for name in EVENTS)
"""A longer line without an end is none of these events."""


QUIET_LINES = re.compile(rb"(?:(\r?\n)|:[^\r\n]*+\r?\n)*+")
"""A run of empty lines and comments, of which an engine may send thousands; the group matches if any line is empty."""


class Preamble:
    """Finds the beginning of the answer in a stream's body, which it is given in order, in pieces of any size.

    Keeps at most the name of one event.
    """

    def __init__(self) -> None:
        self._line = bytearray()
        self._named = False
        """Whether the current event is one of ``EVENTS``."""
        self._skipping = False
        """Whether the rest of a line without content is still to come."""

    def ends_in(self, part: bytes) -> bool:
        """Return whether the answer begins in ``part``."""
        for line in self._after_quiet_lines(part).splitlines(keepends=True):
            whole = line.endswith(b"\n")
            if self._skipping:
                self._skipping = not whole
                continue
            self._line += line[: LONGEST + 1]
            if not whole and len(self._line) <= LONGEST and not self._is_silent():
                return False  # the rest of the line decides
            if not self._is_silent(whole=whole):
                self._line.clear()
                return True
            self._skipping = not whole
            self._line.clear()
        return False

    def _after_quiet_lines(self, part: bytes) -> bytes:
        """Return ``part`` without the empty lines and comments at its beginning."""
        if self._skipping or self._line:
            return part
        quiet = QUIET_LINES.match(part)
        if quiet is None or not quiet.end():
            return part
        if quiet[1] is not None:
            self._named = False
        return part[quiet.end() :]

    def _is_silent(self, *, whole: bool = False) -> bool:
        line = bytes(self._line).rstrip(b"\r\n")
        if not line:
            if whole:
                self._named = False
            return whole
        if line.startswith(b"event:") and whole:
            self._named = line[6:].strip() in EVENTS
            return self._named
        return line.startswith(b":") or (self._named and line.startswith((b"data:", b"id:", b"retry:")))
