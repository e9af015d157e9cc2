"""Stopping a command as people and orchestrators do."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable


class Stop(asyncio.Event):
    """Set when the command is to stop; ``signal`` is the one that said so, if one did."""

    signal: signal.Signals | None = None


async def until_signalled(work: Callable[[Stop], Awaitable[None]]) -> None:
    """Run ``work``; the first SIGINT or SIGTERM sets its event, the second cancels it and is no error."""
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
