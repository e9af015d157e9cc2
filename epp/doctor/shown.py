"""What others have written, as it may stand in a terminal and in a command: one line, printable, short, and quoted."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator

from epp.doctor.finding import Finding

MOST_TEXT, MOST_REMEDY = 800, 8000
"""The longest sentence and remedy. A guess: the longest of healthy objects have 500 and 2,000 characters."""
MOST_OF_A_CAUSE = 20
"""How many findings of one cause are shown; the number of the others is shown. A guess."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def is_name(text: str) -> bool:
    """Return whether ``text`` can be an object's name, so that it may stand in a path of the API."""
    return _NAME.fullmatch(text) is not None


def word(text: str) -> str:
    """Return ``text`` as one word of a shell's command."""
    return shlex.quote(text)


def printable(text: str) -> str:
    """Return ``text`` with its control characters, and those that change the direction of writing, escaped."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def number(text: str) -> int | None:
    """Return a decimal number of at most 18 digits; None for everything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def fit(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield findings whose parts are short and printable, and of each cause no more than can be read."""
    seen = Counter[str]()
    for finding in findings:
        seen[finding.cause] += 1
        if seen[finding.cause] <= MOST_OF_A_CAUSE:
            yield Finding(finding.cause, _line(finding.object), _line(finding.text), _remedy(finding.remedy))
    for cause, count in seen.items():
        if count > MOST_OF_A_CAUSE:
            yield Finding(
                cause, f"Further objects ({count - MOST_OF_A_CAUSE:,})", "have the same cause as those that are "
                "shown.", "mend those that are shown, and repeat the command",
            )  # fmt: skip


def _line(text: str) -> str:
    line = printable(" ".join(text.split()))
    return line if len(line) <= MOST_TEXT else f"{line[:MOST_TEXT]}... ({len(line):,} characters)."


def _remedy(text: str) -> str:
    if len(text) > MOST_REMEDY:
        return f"the command is not shown, since a name in it makes it {len(text):,} characters long"
    return "\n".join(printable(line) for line in text.split("\n"))
