"""Work beside the requests: none of it ends in silence.

A task that raises is kept by asyncio until somebody asks for its result, and nobody asks for that of a task which was
to run for ever. So a chore that raises is begun again, and what it raised goes to the event loop's exception handler,
with everything else that nobody caught there (timers, callbacks, forgotten tasks): logged, and counted by ``Uncaught``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from epp.metrics.gauges import Reading

AGAIN_AFTER_S = 1.0
"""Long enough that a chore which fails at once costs nothing. A guess."""
CHORE = "chore"
ELSEWHERE = "event loop"
_Handler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]


class Chore:
    """Runs ``work`` until it returns or is stopped, and again when it raises. Owner: the event loop that made it."""

    def __init__(self, name: str, work: Callable[[], Awaitable[None]], *, again_after_s: float = AGAIN_AFTER_S) -> None:
        self._name = name
        self._work = work
        self._again_after_s = again_after_s
        self._task = asyncio.create_task(self._run(), name=name)

    async def stop(self) -> None:
        """Cancel it and return once it has ended. Stopping twice is no error."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        while True:
            try:
                await self._work()
            except Exception as error:  # whatever it is, the work is needed
                message = f"{self._name} failed and begins again in {self._again_after_s:g} s"
                context = {"message": message, "exception": error, CHORE: self._name}
                asyncio.get_running_loop().call_exception_handler(context)
            else:
                return
            await asyncio.sleep(self._again_after_s)


class Uncaught:
    """Counts exceptions that nobody caught on an event loop; asyncio logs them, with their traceback."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """By chore."""
        self._before: _Handler | None = None

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Count on ``loop`` from now on; ``leave`` ends it."""
        self._before = loop.get_exception_handler()
        loop.set_exception_handler(self._take)

    def leave(self, loop: asyncio.AbstractEventLoop) -> None:
        """Count no more."""
        loop.set_exception_handler(self._before)

    def readings(self) -> Iterator[Reading]:
        """For ``Telemetry.gauge_source``."""
        yield Reading(
            "tierwise_background_failures",
            "Exceptions in work beside the requests, which was begun again; `event loop` for anything else uncaught.",
            ("chore",),
            [((name,), count) for name, count in self.counts.items()],
            counter=True,
        )

    def _take(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.counts[context.get(CHORE, ELSEWHERE)] += 1
        loop.default_exception_handler(context)
