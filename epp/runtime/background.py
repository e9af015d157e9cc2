"""Background tasks that are restarted, and whose exceptions are always logged and counted.

asyncio reports a task's exception only when its result is read, which never happens for a task that should run
forever. Therefore a chore that raises is started again, and its exception goes to the event loop's exception handler.
All other uncaught exceptions of the loop (timers, callbacks, forgotten tasks) arrive there, too: they are logged, and
``Uncaught`` counts them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from epp.metrics.gauges import Reading

AGAIN_AFTER_S = 1.0
"""A guess: long enough that a chore which fails immediately costs almost nothing."""
CHORE = "chore"
ELSEWHERE = "event loop"
_Handler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]


class Chore:
    """Runs ``work`` until it returns or is stopped, and starts it again when it raises.

    Owner: the event loop that made it.
    """

    def __init__(self, name: str, work: Callable[[], Awaitable[None]], *, again_after_s: float = AGAIN_AFTER_S) -> None:
        self._name = name
        self._work = work
        self._again_after_s = again_after_s
        self._task = asyncio.create_task(self._run(), name=name)

    async def stop(self) -> None:
        """Cancel the work, and return once it has ended. A second call is harmless."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        while True:
            try:
                await self._work()
            except Exception as error:  # the work is needed, whatever the failure is
                message = f"{self._name} failed and begins again in {self._again_after_s:g} s"
                context = {"message": message, "exception": error, CHORE: self._name}
                asyncio.get_running_loop().call_exception_handler(context)
            else:
                return
            await asyncio.sleep(self._again_after_s)


class Uncaught:
    """Counts the uncaught exceptions of an event loop; asyncio logs them with their tracebacks."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Number of exceptions by the chore's name, or by ``ELSEWHERE``."""
        self._before: _Handler | None = None

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to count exceptions of ``loop``; ``leave`` ends that."""
        self._before = loop.get_exception_handler()
        loop.set_exception_handler(self._take)

    def leave(self, loop: asyncio.AbstractEventLoop) -> None:
        """Restore the loop's previous exception handler."""
        loop.set_exception_handler(self._before)

    def readings(self) -> Iterator[Reading]:
        """Return the counts for the metrics page."""
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
