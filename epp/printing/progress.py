"""Progress of work that takes a while: a bar on a terminal, a line now and then elsewhere. It goes to standard error,
so that a command's answer can be piped."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from epp.printing.prose import Prose, console_for, show

LINE_EVERY_S = 3.0


class Progress:
    """One piece of work of ``total`` steps. A context manager; owned by the thread that works."""

    def __init__(
        self, title: str, total: int, unit: str = "", console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._title, self._total, self._unit = title, total, unit
        self._console = console or console_for(stderr=True)
        self._clock = clock
        self._began = self._said = clock()
        self._done = 0
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
                   TimeElapsedColumn(), TimeRemainingColumn())  # fmt: skip
        self._bar = Bar(*columns, console=self._console, transient=True) if self._console.is_terminal else None
        self._task = self._bar.add_task(title, total=total) if self._bar is not None else None

    def __enter__(self) -> Progress:
        self._began = self._said = self._clock()
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def expect(self, steps: int) -> None:
        """Make ``total`` large enough for ``steps`` more."""
        self._total = max(self._total, self._done + steps)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, total=self._total)

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Count ``steps`` as done; ``note`` says what was done last."""
        self._done += steps
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, advance=steps, description=note or self._title)
            return
        now = self._clock()
        if not steps or now - self._said < LINE_EVERY_S:
            return
        self._said = now
        unit = f" {self._unit}" if self._unit else ""
        about = f" ({note})" if note else ""
        self.say(f"{self._title}: {self._done:,} of {self._total:,}{unit} in {now - self._began:.0f} s{about}")

    def say(self, line: str) -> None:
        """Print a line of its own, above the bar where there is one."""
        console = self._bar.console if self._bar is not None else self._console
        show(console, [Prose(line)])
