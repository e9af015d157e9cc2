"""Starts engines and servers before the tests that need them, one after the other, while other tests run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, TypeAlias

from tests.vllm.apart import Apart

Make: TypeAlias = Callable[[Path, Path], AbstractContextManager[Any]]
"""Makes one of them from the model and an empty folder."""


class Ahead:
    """Starts everything in the given order, as processes, so that nothing of it is visible in this one."""

    def __init__(self, model: Path, folder: Path, makes: Iterable[tuple[str, Make]]) -> None:
        self.shared_memory = {path.name for path in Path("/dev/shm").iterdir()}
        """The shared memory that there was before anything was started."""
        self._stacks: dict[str, ExitStack] = {}
        self._found: dict[str, Future[Any]] = {}
        self._thread = ThreadPoolExecutor(1)
        for name, make in makes:
            place = folder / name
            place.mkdir()
            self._stacks[name] = ExitStack()
            self._found[name] = self._thread.submit(self._begin, name, make, model, place)

    def __getitem__(self, name: str) -> Any:
        return self._found[name].result()

    def end(self, name: str) -> None:
        """End one of them, since no further test needs it."""
        self._stacks[name].close()

    def end_all(self) -> None:
        self._thread.shutdown(cancel_futures=True)
        for stack in self._stacks.values():
            stack.close()

    def _begin(self, name: str, make: Make, model: Path, place: Path) -> Any:
        found = self._stacks[name].enter_context(make(model, place))
        if isinstance(found, Apart):
            found.results()  # waits, so that engines run one at a time
        return found
