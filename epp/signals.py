"""Stopping a command as people and orchestrators do."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable


async def until_signalled(work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run ``work``; the first SIGINT or SIGTERM sets its event, the second cancels it and is no error."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    task = asyncio.ensure_future(work(stop))

    def signalled() -> None:
        if stop.is_set():
            task.cancel()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, signalled)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await task
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
