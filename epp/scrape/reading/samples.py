"""The lines of one metric on a page, found by its name; the rest is never split into lines, let alone parsed.

Every limit here bounds the cost of one page, because reading it delays every other endpoint.

Source: Prometheus' text format 0.0.4.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from epp.scrape.reading.error import ScrapeError

MAX_LINE_BYTES = 1 << 18
"""A line that lists a thousand LoRA adapters has 64 KiB or more."""
MAX_SERIES = 4096
"""Maximum number of series of one metric. An engine has one or a few; only for LoRA adapters does vLLM have one for
each set that was ever in use.
"""
MAX_MENTIONS = 1 << 14
"""Maximum number of occurrences of one name on a page, including longer names that begin with it."""
MAX_LABELS = 256
MAX_LABELS_BYTES = 1 << 18
"""Maximum number of label bytes, over the series of one metric that are distinguished by their labels."""
MAX_INDENT_BYTES = 64

_LABEL = re.compile(rb'[ \t]*([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*"([^"\\\n]*(?:\\.[^"\\\n]*)*)"[ \t]*(,|(?=\}))')
_END = re.compile(rb"[ \t}]*\Z")
_ESCAPE = re.compile(r"\\(.)")
_AFTER_A_NAME = (b"{", b" ", b"\t")


class Sample(NamedTuple):
    """One line of a page, parsed into labels and value."""

    labels: bytes
    """The text between the braces, with the closing brace; empty without braces."""
    value: float


def samples(page: bytes, name: bytes, *, last: bool = False) -> list[Sample]:
    """Return the samples of the metric ``name``, in order; with ``last``, only the last MAX_SERIES.

    Raises: ScrapeError if a line cannot be read, or if there are too many.
    """
    found: list[Sample] = []
    mentions = 0
    at = page.rfind(name)  # from the end, since CPython searches backward twice as fast
    while at >= 0:
        after = at + len(name)
        if page[after : after + 1] in _AFTER_A_NAME and (at == 0 or page[at - 1] == 10 or _is_indented(page, at)):
            if len(found) == MAX_SERIES:
                if last:
                    break
                raise ScrapeError(f"the page has more than {MAX_SERIES} series of {name.decode()}")
            end = page.find(b"\n", after)
            found.append(_sample(name, page[after : end if end >= 0 else len(page)]))
        mentions += 1
        if mentions > MAX_MENTIONS:
            raise ScrapeError(f"the page mentions {name.decode()} more than {MAX_MENTIONS} times")
        at = page.rfind(name, 0, at)
    found.reverse()
    return found


def short_enough(found: list[Sample]) -> list[Sample]:
    """Return ``found`` if its labels are short enough to be read. Raises: ScrapeError if they are too long."""
    if len(found) > 1 and (size := sum([len(labels) for labels, _ in found])) > MAX_LABELS_BYTES:
        raise ScrapeError(f"the labels of one metric have {size} bytes, and {MAX_LABELS_BYTES} are read")
    return found


def labels_of(text: bytes) -> dict[str, str]:
    """Return the labels of a sample by name. Raises: ScrapeError."""
    at, read, found = 0, 0, dict[str, str]()
    while at < len(text):
        if _END.match(text, at):
            return found
        match = _LABEL.match(text, at)
        if match is None:
            raise ScrapeError(f"labels {shown(text)} are malformed")
        read += 1
        if read > MAX_LABELS:
            raise ScrapeError(f"labels {shown(text)} are more than {MAX_LABELS}")
        value = match[2].decode("utf-8", "replace")
        found[match[1].decode()] = _ESCAPE.sub(_unescaped, value) if "\\" in value else value
        at = match.end()
    return found


def shown(text: bytes) -> str:
    """Return the beginning of ``text``, for messages."""
    return repr(text[:120].decode("utf-8", "replace"))


def _is_indented(page: bytes, at: int) -> bool:
    """Return whether only whitespace is between ``at`` and the beginning of its line."""
    first = max(0, at - MAX_INDENT_BYTES)
    while at > first and page[at - 1] in b" \t":
        at -= 1
    return at == 0 or page[at - 1] == 10


def _sample(name: bytes, line: bytes) -> Sample:
    if len(line) > MAX_LINE_BYTES:
        raise ScrapeError(f"a line of {name.decode()} has {len(line)} bytes, and {MAX_LINE_BYTES} are read")
    line = line.strip()
    labels, brace, rest = b"", b"", line
    if line.startswith(b"{"):
        labels, brace, rest = line[1:].rpartition(b"}")  # neither a value nor a timestamp contains a brace
    fields = rest.split(None, 3)
    try:
        if len(fields) not in (1, 2) or b"_" in fields[0] or (line.startswith(b"{") and not brace):
            raise ValueError  # noqa: TRY301 - the same message
        return Sample(labels + brace, float(fields[0]))
    except ValueError:
        raise ScrapeError(f"the line {shown(name + line)} is malformed") from None


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]
