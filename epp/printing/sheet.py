"""A table that becomes a list where it is too wide: no cell is ever cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from textwrap import wrap

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from epp.printing.prose import Prose, wrapped

NARROWEST = 24
"""Columns that a column of sentences needs."""
_INDENT = 4
_UNLIMITED = 100_000


class Sheet:
    """Rows under headings. The first column is text, the others are numbers and are aligned to the right.

    In order, until it fits: headings on one line, headings in as many lines as their column needs, and a block of lines
    for each row, or ``otherwise`` where that is given.
    """

    def __init__(
        self,
        title: str,
        *columns: str,
        texts: tuple[str, ...] = (),
        sentences: str = "",
        otherwise: Iterable[RenderableType] | None = None,
    ) -> None:
        """``texts`` are headings of columns aligned to the left, too; so is ``sentences``, which is wrapped."""
        self._texts = texts
        self._title, self._columns, self._sentences = title, columns, sentences
        self._otherwise = otherwise
        self._rows: list[tuple[tuple[str, ...], str]] = []

    def add(self, *cells: str, style: str = "") -> None:
        """Add a row. Cells that are left out at its end are empty."""
        self._rows.append((cells + ("",) * (len(self._columns) - len(cells)), style))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        if self._title:
            yield Prose(self._title, "bold")
        for headings in (self._columns, tuple(map(self._narrow, range(len(self._columns))))):
            table = self._table(headings)
            if self._least(table, headings) <= options.max_width:
                yield table
                return
        yield from self._list(options.max_width) if self._otherwise is None else self._otherwise

    def _cells(self, column: int) -> Iterator[str]:
        return (cells[column] for cells, _ in self._rows)

    def _narrow(self, column: int) -> str:
        """The column's heading, no wider than its cells and its longest word."""
        heading = self._columns[column]
        pieces = heading.replace("-", "- ").split()
        width = max((cell_len(text) for text in (*self._cells(column), *pieces)), default=1)
        return "\n".join(wrap(heading, max(1, width)))

    def _table(self, headings: Iterable[str]) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for n, (heading, name) in enumerate(zip(headings, self._columns, strict=True)):
            whole = name != self._sentences or not name
            left = n == 0 or not whole or name in self._texts
            table.add_column(Text(heading), justify="left" if left else "right", no_wrap=whole, overflow="fold")
        for cells, style in self._rows:
            table.add_row(*(Text(cell) for cell in cells), style=style)
        return table

    def _least(self, table: Table, headings: Iterable[str]) -> int:
        """The columns that the table needs at the least."""
        least = Console(width=_UNLIMITED).measure(table).maximum
        for n, (heading, name) in enumerate(zip(headings, self._columns, strict=True)):
            if name and name == self._sentences:
                natural = max(cell_len(text) for text in (*self._cells(n), heading))
                least -= max(0, natural - NARROWEST)
        return least

    def _list(self, width: int) -> Iterator[Text]:
        """Each row as its first cell, and a line for each of the others."""
        longest = max((cell_len(name) for name in self._columns[1:]), default=0)
        beside = width - _INDENT - longest - 2 >= NARROWEST
        for (first, *others), style in self._rows:
            lines = [first] if first else []
            for name, cell in zip(self._columns[1:], others, strict=True):
                if not cell:
                    continue
                label = f"{'':{_INDENT}}{name}" + (" " * (longest + 2 - cell_len(name)) if beside else "")
                indent = cell_len(label) if beside else 2 * _INDENT
                value = wrapped(cell, max(1, width - indent))
                lines += (
                    [label + value[0], *(" " * indent + line for line in value[1:])]
                    if beside
                    else [label.rstrip(), *(" " * indent + line for line in value)]
                )
            yield Text("\n".join(lines), style, overflow="ignore", no_wrap=True)
