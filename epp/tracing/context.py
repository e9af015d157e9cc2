"""The trace that a request belongs to, from W3C's header ``traceparent``.

Source: W3C Trace Context, level 1: version, trace id, the caller's span id and flags, in lower-case hexadecimal digits.
"""

from __future__ import annotations

import re
from typing import NamedTuple

TRACEPARENT = "traceparent"
HEADER_BYTES = 55
_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
SAMPLED = 1


class TraceContext(NamedTuple):
    """The ids of a span that other spans may be children of."""

    trace_id: int
    span_id: int
    sampled: bool

    @property
    def header(self) -> str:
        """The span as a value of ``traceparent``."""
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{'01' if self.sampled else '00'}"


def parent_of(value: str) -> TraceContext | None:
    """Parse a value of ``traceparent``; return None if it is invalid.

    Later versions of the format may append fields; the current one may not.
    """
    match = _PARENT.fullmatch(value)
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    if version == "ff" or (version == "00" and more):
        return None
    context = TraceContext(int(trace_id, 16), int(span_id, 16), bool(int(flags, 16) & SAMPLED))
    return context if context.trace_id and context.span_id else None
