"""The marks in the pool and the log lines for endpoints that do not respond."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from epp.pool.candidates import serving
from epp.pool.pool import Endpoint
from epp.scrape.answer import Unanswered
from epp.scrape.reading.error import ScrapeError, unconnected
from scorers.base import Silence
from tests.epp.scrape.engines import engine, mute
from tests.epp.scrape.servers import server
from tests.epp.scrape.test_scraper import FAST, PATIENT, Clock, Stage, dead_address, stage

NOBODY = "no endpoint answers: requests get 503 until one does"


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Callable[[str], list[str]]:
    """Return the log lines so far that contain ``word``."""
    caplog.set_level(logging.INFO)
    return lambda word: [r.getMessage() for r in caplog.records if word in r.getMessage()]


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scenario()

    asyncio.run(bounded())


def answering(status: int) -> Callable[[int], Awaitable[web.StreamResponse]]:
    async def answer(_: int) -> web.StreamResponse:
        return web.Response(status=status, text="hello")

    return answer


def test_in_a_rollout_the_one_that_answers_is_the_only_candidate() -> None:
    async def scenario() -> None:
        others = [dead_address(), dead_address()]
        async with engine() as up, stage(up.address, *others, pace=PATIENT, clock=Clock()) as s:
            await s.until(lambda: s.candidate(up.address).fresh)
            await s.until(lambda: all(s.candidate(a).silence is Silence.GONE for a in others))
            assert [c.address for c in serving(s.pool.candidates())] == [up.address]
            async with engine(address=others[0]):
                await s.until(lambda: len(serving(s.pool.candidates())) == 2)

    run(scenario)


def test_a_refused_connection_is_believed_at_once_and_taken_back_by_an_answer_only() -> None:
    async def scenario() -> None:
        async with engine() as other:
            async with engine() as one:
                address = one.address
                context = stage(address, other.address, clock=Clock())
                s = await context.__aenter__()
                await s.until(lambda: s.candidate(address).fresh)
            await s.until(lambda: s.candidate(address).silence is Silence.GONE)  # the clock stands still
            with mute(address):
                await s.until(lambda: s.errors().get((address, "timeout"), 0) > 2)
                assert s.candidate(address).silence is Silence.GONE
            async with engine(answering(404), address=address):
                await s.until(lambda: s.candidate(address).silence is Silence.LATE)
            async with engine(address=address):
                await s.until(lambda: s.candidate(address).fresh)
            await context.__aexit__(None, None, None)

    run(scenario)


@pytest.mark.parametrize(
    ("status", "silence"),
    [(404, Silence.LATE), (401, Silence.LATE), (500, Silence.LATE), (200, Silence.LATE), (503, Silence.GONE)],
)
def test_an_engine_that_serves_no_page_is_late_and_one_behind_a_proxy_that_cannot_reach_it_gone(
    status: int, silence: Silence, log: Callable[[str], list[str]]
) -> None:
    async def scenario() -> None:
        async with engine(answering(status)) as one, stage(one.address, pace=PATIENT) as s:
            await s.until(lambda: s.candidate(one.address).silence is silence)
            assert len(serving(s.pool.candidates())) == 1, "and it is used: there is no other"
            await s.until(lambda: bool(log("no metrics for")))

    run(scenario)
    assert bool(log(NOBODY)) == (silence is Silence.GONE)


def test_a_closed_port_of_the_metrics_alone_says_nothing_of_the_engine() -> None:
    async def scenario() -> None:
        async with engine() as one, stage(clock=Clock()) as s:
            s.pool.replace([Endpoint("127.0.0.1:1", metrics_url=f"http://{one.address}/metrics")])
            await s.until(lambda: s.candidate("127.0.0.1:1").fresh)
            s.pool.replace([Endpoint("127.0.0.1:1", metrics_url=f"http://{dead_address()}/metrics")])
            await s.until(lambda: s.errors().get(("127.0.0.1:1", "connection"), 0) > 1)
            assert s.candidate("127.0.0.1:1").fresh, "until its numbers are too old"

    run(scenario)


def test_a_port_that_accepts_and_closes_without_a_response_has_no_engine() -> None:
    async def closes(_: asyncio.StreamWriter, __: int) -> bool:
        return False

    async def scenario() -> None:
        async with server(closes) as one, stage(one.address, clock=Clock()) as s:
            await s.until(lambda: s.candidate(one.address).silence is Silence.GONE)

    run(scenario)


def test_an_outage_of_all_is_one_error_and_its_end_one_line(log: Callable[[str], list[str]]) -> None:
    async def scenario() -> None:
        addresses = list[str]()
        context: list[Stage] = []
        async with engine() as one, engine() as two, engine() as three:
            addresses += [one.address, two.address, three.address]
            running = stage(*addresses)
            context.append(await running.__aenter__())
            s = context[0]
            await s.until(lambda: all(s.candidate(a).fresh for a in addresses))
        reads = lambda: min(s.errors().get((a, "connection"), 0) for a in addresses)  # noqa: E731
        await s.until(lambda: reads() > 5)
        assert len(log(NOBODY)) == 1
        async with engine(address=addresses[1]):
            await s.until(lambda: s.candidate(addresses[1]).fresh)
        await s.until(lambda: not s.candidate(addresses[1]).fresh and len(log(NOBODY)) == 2)
        await running.__aexit__(None, None, None)

    run(scenario)
    assert len(log("no endpoint did")) == 1
    preferred = log("others are preferred")
    assert len(preferred) == 2, "of the third there are no others"


def test_that_others_are_preferred_is_said_only_where_it_is_so(log: Callable[[str], list[str]]) -> None:
    async def scenario() -> None:
        with mute() as silent:
            dead = dead_address()
            async with stage(silent, dead, pace=FAST) as s:
                await s.until(lambda: len(log("no metrics for")) == 2)
                await s.until(lambda: len(log("no endpoint answers in time")) == 1)

    run(scenario)
    assert log("others are preferred") == []


@pytest.mark.parametrize(
    ("error", "gone"),
    [
        (ConnectionRefusedError(111, "refused"), True),
        (OSError("Multiple exceptions: [Errno 111]"), True),
        (OSError(113, "No route to host"), True),
        (OSError(24, "Too many open files"), False),
        (OSError(99, "Cannot assign requested address"), False),
        (ValueError("not a port"), False),
    ],
)
def test_what_this_machine_lacks_says_nothing_of_an_endpoint(error: Exception, gone: bool) -> None:
    assert unconnected("http://x/metrics", error).gone is gone
    assert not ScrapeError("slow", reason="timeout").gone
    assert Unanswered("closed", reason="connection", gone=True).gone
