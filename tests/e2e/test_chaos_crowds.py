"""Crowds of clients, clients that leave, and clients that read slowly: no request is lost or left behind."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path

import pytest

from tests.e2e.site.chaos import Mode, Site, eventually, site
from tests.e2e.site.fragile import Mood, request_body
from tests.e2e.site.storm import Fate, Visitor, executed, until

pytestmark = pytest.mark.e2e
both_modes = pytest.mark.parametrize("mode", list(Mode), ids=lambda mode: mode.value)
MIB = 1 << 20
STREAMS = 2_000
"""Envoy's own limits are 1,024: of streams to the picker, of requests to the endpoints."""
CANCELLED, AT_ONCE = 10_000, 100
GROWTH_BYTES = 16 * MIB
"""The memory that a round may leave after one of the same size. A leak of 2 KiB for each canceled request would be
more; the fragmentation of the allocator varies.
"""


@both_modes
def test_two_thousand_streams_at_once_are_all_answered(tmp_path: Path, mode: Mode) -> None:
    async def scenario() -> None:
        async with site(tmp_path, mode, engines=4) as here:
            numbers, resident = count(1_000_000), []
            for _ in range(2):
                for engine in here.engines:
                    engine.mood = Mood.HELD
                visitors = [Visitor(here.storm.port) for _ in range(STREAMS)]
                asking = [asyncio.create_task(each.ask(next(numbers), stream=True)) for each in visitors]
                await until(lambda: sum(e.running for e in here.engines) == STREAMS, "all are under way at once")
                assert await here.picker.in_flight() == STREAMS
                for engine in here.engines:
                    engine.recover()
                here.storm.results += await asyncio.gather(*asking)
                for visitor in visitors:
                    visitor.leave()
                await here.settled()
                resident.append(here.picker.resident_bytes())
            assert here.storm.fates().keys() == {Fate.ANSWERED}
            assert max(executed(here.engines).values()) == 1
            assert resident[1] < resident[0] + GROWTH_BYTES

    asyncio.run(scenario())


async def cancel(here: Site, requests: int) -> None:
    """Send ``count`` requests and leave: before the request is complete, at once after it, or when the answer has
    begun.
    """
    numbers = iter(range(requests))

    async def fickle() -> None:
        visitor = Visitor(here.storm.port)
        for number in numbers:
            body = request_body(number, stream=True)
            if number % 3 == 0:
                await visitor.send(body, part=20)
            else:
                await visitor.send(body)
            if number % 3 == 2:
                async with asyncio.timeout(30):
                    await visitor.begun.wait()
            visitor.leave()

    await asyncio.gather(*(fickle() for _ in range(AT_ONCE)))
    await here.settled()


@both_modes
def test_ten_thousand_cancelled_requests_leave_nothing(tmp_path: Path, mode: Mode) -> None:
    async def scenario() -> None:
        async with site(tmp_path, mode) as here:
            for engine in here.engines:
                engine.mood = Mood.HELD
            await cancel(here, CANCELLED // 5)
            before = here.picker.resident_bytes()
            await cancel(here, CANCELLED)
            assert here.picker.resident_bytes() < before + GROWTH_BYTES
            for engine in here.engines:
                engine.recover()
            with here.storm.raging(4):
                await here.storm.more(20)
            await here.storm.ended()
            assert here.storm.fates().keys() == {Fate.ANSWERED}

    asyncio.run(scenario())


@both_modes
def test_slow_readers_hold_up_nobody_and_get_every_byte(tmp_path: Path, mode: Mode) -> None:
    async def scenario() -> None:
        async with site(tmp_path, mode, max_request_bytes=MIB) as here:
            storm, before = here.storm, here.picker.resident_bytes()
            slow = [Visitor(storm.port) for _ in range(4)]
            asking = [
                asyncio.create_task(each.ask(2_000_000 + n, stream=True, pad=4 * MIB)) for n, each in enumerate(slow)
            ]
            for visitor in slow:
                await asyncio.wait_for(visitor.begun.wait(), 30)
                visitor.pause()
            with storm.raging(8):
                await storm.more(200)
            await storm.ended()
            assert not any(task.done() for task in asking), "they are still at it"
            assert here.picker.resident_bytes() < before + 32 * MIB, "what they do not read is not the picker's to keep"
            for visitor in slow:
                visitor.resume()
            storm.results += await asyncio.gather(*asking)
            for visitor in slow:
                visitor.leave()
            assert storm.fates().keys() == {Fate.ANSWERED}
            await eventually(here.picker.in_flight, lambda n: n == 0, "the ledger is empty")
            await here.settled()

    asyncio.run(scenario())
