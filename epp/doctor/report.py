"""Findings as text for people, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from epp.doctor.finding import Finding
from epp.printing.prose import Prose
from epp.printing.shell import example


class Remedy:
    """A command or YAML, never cut: a command of one line goes on in further lines."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        one_line = "\n" not in self._text
        lines = [example(self._text, options.max_width - 2)] if one_line else [f"  {self._text}"]
        yield Text("  " + "\n  ".join(lines[0].split("\n")), overflow="ignore", no_wrap=True)


def as_text(where: str, findings: Sequence[Finding], counts: Mapping[str, str]) -> Iterator[RenderableType]:
    """Yield each finding with what mends it, and a last line about what was looked at."""
    for number, finding in enumerate(findings, start=1):
        yield Prose(f"{number}. {finding.object} {finding.text}", hang=3)
        yield Prose(f"   cause {finding.cause}; to mend it:", style="dim")
        yield Remedy(finding.remedy)
        yield Prose("")
    looked = ", ".join(f"{name} {count}" for name, count in counts.items())
    found = f"{len(findings)} finding{'s' * (len(findings) != 1)}" if findings else "nothing is wrong"
    yield Prose(f"{where}: {found}; looked at: {looked}", hang=4)


def as_json(where: str, findings: Sequence[Finding], counts: Mapping[str, str]) -> str:
    """Return one JSON object: ``namespace``, ``findings`` and ``looked_at``."""
    whole: dict[str, Any] = {"namespace": where, "findings": findings, "looked_at": counts}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode()
