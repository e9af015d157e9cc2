"""The first signal asks the command to stop, and a second one cancels it."""

from __future__ import annotations

import asyncio
import os
import signal

from epp.runtime.signals import until_signalled


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def test_the_first_signal_asks_the_work_to_stop() -> None:
    async def work(stop: asyncio.Event) -> None:
        send(signal.SIGTERM)
        await stop.wait()

    asyncio.run(until_signalled(work))


def test_the_second_signal_ends_work_that_does_not_stop_and_is_no_error() -> None:
    cleaned: list[str] = []

    async def work(stop: asyncio.Event) -> None:
        send(signal.SIGINT)
        await stop.wait()
        send(signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("up")

    asyncio.run(until_signalled(work))
    assert cleaned == ["up"]
