"""Sentences wrapped between words, and the console that everything is printed on.

A console has the terminal's columns. Output that is piped has as many as ``COLUMNS`` or the terminal around it says, or
80. A word that is longer than a line, such as a path, stays whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from textwrap import wrap

from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Prose:
    """Text that is wrapped to the console, each line but the first indented by ``hang``."""

    text: str
    style: str = ""
    hang: int = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield Text("\n".join(wrapped(self.text, options.max_width, self.hang)), self.style, overflow="ignore")


def wrapped(text: str, width: int, hang: int = 0) -> list[str]:
    """``text`` in lines of ``width`` columns; its own line ends stay."""
    lines = []
    for line in text.split("\n"):
        indent = " " * hang
        lines += wrap(line, width, break_long_words=False, break_on_hyphens=False, subsequent_indent=indent) or [""]
    return lines


def console_for(*, stderr: bool = False) -> Console:
    """The console for standard output, or for standard error."""
    return Console(stderr=stderr, highlight=False)


def show(console: Console, parts: Iterable[RenderableType]) -> None:
    """Print ``parts`` one below the other without cropping; lines that are piped end without blanks."""
    for part in parts:
        if console.is_terminal:
            console.print(part, crop=False, markup=False)
            continue
        with console.capture() as capture:
            console.print(part, crop=False, markup=False)
        console.file.write("\n".join(line.rstrip(" ") for line in capture.get().split("\n")))
