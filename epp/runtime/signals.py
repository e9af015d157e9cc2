"""Stopping a command by SIGINT or SIGTERM, as users and orchestrators do."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable


class Stop(asyncio.Event):
    """Set when the command has to stop; ``signal`` is the signal that caused it, if there was one."""

    signal: signal.Signals | None = None


async def until_signalled(work: Callable[[Stop], Awaitable[None]]) -> None:
    """Run ``work``: the first SIGINT or SIGTERM sets its event, and the second cancels it, which raises nothing."""
    stop, loop = Stop(), asyncio.get_running_loop()
    task = asyncio.ensure_future(work(stop))

    def signalled(number: signal.Signals) -> None:
        if stop.is_set():
            task.cancel()
        else:
            stop.signal = number
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, signalled, number)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await task
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
