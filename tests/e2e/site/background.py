"""An event loop in a thread beside the test, so that a test reads from top to bottom and blocks where a user would."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
PATIENCE_S = 20.0


class Background:
    """Runs coroutines on a loop of its own thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="background-loop", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on the loop and return its result, which must come within PATIENCE_S."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE_S)

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a plain function on the loop and return its result."""

        async def work() -> T:
            return function(*arguments)

        return self.run(work())

    def until(self, condition: Callable[[], Any], what: str | Callable[[], str] = "") -> None:
        """Return once ``condition``, called on the loop, holds. Raises: AssertionError with ``what`` if it does not in
        time.
        """
        self.run(until(condition, what))

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


async def until(condition: Callable[[], Any], what: str | Callable[[], str] = "") -> None:
    """Return once ``condition`` holds. Raises: AssertionError with ``what`` if it does not in time."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_S * 0.8
    while not condition():
        if asyncio.get_running_loop().time() >= deadline:
            raise AssertionError(f"never: {(what() if callable(what) else what) or condition}")
        await asyncio.sleep(0.005)


@contextmanager
def background() -> Iterator[Background]:
    loop = Background()
    try:
        yield loop
    finally:
        loop.close()
