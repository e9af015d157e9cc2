"""The CPU time of a vLLM engine that this process has started."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType


class EngineCpu:
    """The CPU time of the processes that were started within its ``with`` block."""

    def __enter__(self) -> EngineCpu:
        self._before = processes()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._processes = processes() - self._before

    def seconds(self) -> float:
        """Return the CPU time of all their threads, from the kernel's counters in nanoseconds."""
        tasks = (task for process in self._processes for task in Path(f"/proc/{process}/task").glob("*/schedstat"))
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def processes() -> set[int]:
    """Return the ids of all descendants of this process."""
    import psutil  # vLLM brings it

    return {child.pid for child in psutil.Process().children(recursive=True)}
