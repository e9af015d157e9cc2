from __future__ import annotations

import asyncio

import pytest

from epp.runtime.background import Chore, Uncaught
from tests.e2e.site.background import until


def test_a_chore_that_raises_is_logged_counted_and_begun_again(caplog: pytest.LogCaptureFixture) -> None:
    begun = []

    async def work() -> None:
        begun.append(1)
        if len(begun) < 3:
            raise RuntimeError("no such luck")
        await asyncio.Event().wait()

    async def scenario() -> Uncaught:
        uncaught = Uncaught()
        uncaught.watch(asyncio.get_running_loop())
        chore = Chore("dusting", work, again_after_s=0.001)
        await until(lambda: len(begun) == 3)
        await chore.stop()
        await chore.stop()
        return uncaught

    uncaught = asyncio.run(scenario())
    assert uncaught.counts == {"dusting": 2}
    assert "dusting failed and begins again in 0.001 s" in caplog.text
    assert "RuntimeError: no such luck" in caplog.text
    (reading,) = uncaught.readings()
    assert list(reading.samples) == [(("dusting",), 2)]


def test_a_chore_that_returns_is_done() -> None:
    begun = []

    async def work() -> None:
        begun.append(1)

    async def scenario() -> None:
        chore = Chore("dusting", work, again_after_s=0.0)
        await until(lambda: begun)
        for _ in range(5):
            await asyncio.sleep(0)
        await chore.stop()

    asyncio.run(scenario())
    assert begun == [1]


def test_a_timer_that_raises_is_counted_too(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> Uncaught:
        uncaught, loop = Uncaught(), asyncio.get_running_loop()
        uncaught.watch(loop)
        loop.call_soon(lambda: 1 // 0)
        await until(lambda: uncaught.counts)
        uncaught.leave(loop)
        return uncaught

    assert asyncio.run(scenario()).counts == {"event loop": 1}
    assert "ZeroDivisionError" in caplog.text
