"""Engines that misbehave on real sockets: each loses its own numbers, and no other does."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import tracemalloc

import pytest
from aiohttp import web

from epp.scrape.pace import Pace
from epp.scrape.page import MAX_PAGE_BYTES
from tests.epp.scrape.engines import engine, page
from tests.epp.scrape.servers import Script, repeating, sending, server
from tests.epp.scrape.test_scraper import PATIENCE_S, Stage, stage

HASTY = Pace(busy_s=0.005, idle_s=0.02, staleness_s=0.5, timeout_s=0.3)
PATIENT = Pace(busy_s=0.005, idle_s=0.02, staleness_s=0.5, timeout_s=10)
GOOD = page(running=1).encode()
NEEDED = b"vllm:num_requests_running 1\n"


def answer(body: bytes, head: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%b\r\n%b" % (len(body), head, body)


def dripping(part: bytes) -> Script:
    """Send a byte at intervals, without end."""

    async def script(writer: asyncio.StreamWriter, _: int) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.02)

    return script


async def reset(writer: asyncio.StreamWriter, _: int) -> bool:
    """Reset the connection in the middle of a page."""
    writer.write(answer(GOOD)[:-20])
    await writer.drain()
    taken: socket.socket = writer.get_extra_info("socket")
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
    return False


async def silent(writer: asyncio.StreamWriter, _: int) -> bool:
    return not writer.is_closing()


SERIES = b"".join(b'vllm:num_requests_running{model_name="%d"} 1\n' % number for number in range(10**6))

MISBEHAVIOUR: dict[str, tuple[Script, str]] = {
    "accepts and stays silent": (silent, "timeout"),
    "a header without end, a byte at a time": (dripping(b"x"), "timeout"),
    "a page without end, a byte at a time": (dripping(b"\r\n\r\nx"), "timeout"),
    "more promised than sent": (sending(answer(GOOD)[:-1]), "timeout"),
    "closed before what was promised": (sending(answer(GOOD)[:-1], stay=False), "connection"),
    "a reset within the page": (reset, "connection"),
    "chunks of garbage": (
        sending(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n" + GOOD), "connection"),
    "a chunk of impossible size": (
        sending(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 40 + b"\r\n"), "connection"),
    "two lengths": (
        sending(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello"), "connection"),
    "no HTTP": (sending(b"\x00\x01\x02\xff" * 100, stay=False), "connection"),
    "a redirect to itself": (
        sending(b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /metrics\r\nContent-Length: 0\r\n\r\n"), "status"),
    "an error": (sending(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"), "status"),
    "not found": (sending(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), "status"),
    "a page without end": (repeating(b"HTTP/1.1 200 OK\r\n\r\n" + NEEDED, b"x 1\n" * 100_000), "size"),
    "a line without end": (repeating(b"HTTP/1.1 200 OK\r\n\r\n" + NEEDED, b"x" * 100_000), "size"),
    "a million series": (sending(answer(SERIES)), "size"),
    "a chunk for each byte": (
        repeating(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 10_000), "size"),
    "a bomb": (sending(answer(b"\x1f\x8b", b"Content-Encoding: gzip\r\n")), "page"),
    "too many series": (sending(answer(SERIES[:1_000_000])), "page"),
    "another page": (sending(answer(b"<html>hello</html>")), "page"),
    "an empty page": (sending(answer(b"")), "page"),
    "a binary page": (sending(answer(bytes(range(256)) * 100)), "page"),
    "a malformed line": (sending(answer(GOOD + b'vllm:num_requests_waiting{a="b 7\n')), "page"),
    "a gigantic line": (sending(answer(GOOD + b"vllm:num_requests_waiting{" + b"x" * 10**6 + b"} 1\n")), "page"),
}  # fmt: skip


@pytest.mark.parametrize("kind", MISBEHAVIOUR)
def test_what_misbehaves_is_counted_logged_once_and_alone_in_its_loss(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    script, reason = MISBEHAVIOUR[kind]
    bad = list[str]()

    async def scenario() -> None:
        pace = HASTY if reason == "timeout" else PATIENT
        async with (
            asyncio.timeout(PATIENCE_S),
            engine() as good,
            server(script) as one,
            stage(good.address, one.address, pace=pace) as s,
        ):
            bad.append(one.address)
            await misbehaves(s, good.address, one.address)

    async def misbehaves(s: Stage, good: str, bad: str) -> None:
        await s.until(lambda: s.errors().get((bad, reason), 0) >= 2)
        await s.until(lambda: any("others are preferred" in r.getMessage() for r in caplog.records))
        await s.until(lambda: s.candidate(good).fresh)
        assert set(s.errors()) == {(bad, reason)}
        assert not s.candidate(bad).fresh
        assert s.candidate(bad).running == 0
        counted = {r.name: sum(n for _, n in r.samples) for r in s.scraper.readings() if "datalayer" in r.name}
        page_errors = s.errors()[bad, reason] if reason == "page" else 0
        assert counted["llm_d_epp_datalayer_extract_errors"] == page_errors
        assert counted["llm_d_epp_datalayer_poll_errors"] == s.errors()[bad, reason] - page_errors

    asyncio.run(scenario())
    everything = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    # The other may be late, too: both engines share the event loop with what they are read by.
    warnings = [line for line in everything if bad[0] in line]
    assert sum("no metrics for" in line for line in warnings) == 1
    assert len(warnings) <= 2, "the first may come while the first reading is still under way"


def test_another_reason_is_another_line_in_the_log_and_the_same_is_none(caplog: pytest.LogCaptureFixture) -> None:
    status = {"now": 500}

    async def answers(_: int) -> web.StreamResponse:
        return web.Response(status=status["now"], text="hello")

    def words() -> list[str]:
        return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]

    async def scenario() -> None:
        async with engine(answers) as one, stage(one.address, pace=PATIENT) as s:
            await s.until(lambda: len(words()) == 1)
            for now in (200, 500, 404, 200):
                status["now"] = now
                reads = one.reads
                await s.until(lambda reads=reads: one.reads > reads + 2)  # type: ignore[misc]

    asyncio.run(scenario())
    assert [("status 500" in w, "has neither" in w) for w in words()] == [(True, False), (False, True)]


def test_an_endless_page_is_held_in_memory_up_to_its_bound_only() -> None:
    async def scenario() -> None:
        script = repeating(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 100_000)
        async with asyncio.timeout(PATIENCE_S), server(script) as bad, stage(bad.address, pace=PATIENT) as s:
            tracemalloc.start()
            try:
                await s.until(lambda: s.errors().get((bad.address, "size"), 0) >= 3)
                assert tracemalloc.get_traced_memory()[1] < 3 * MAX_PAGE_BYTES
            finally:
                tracemalloc.stop()

    asyncio.run(scenario())


def test_a_page_that_takes_long_to_read_is_read_rarely_even_with_requests() -> None:
    slow = NEEDED + b"g" * (4 << 20)

    async def scenario() -> None:
        script = sending(answer(slow))
        async with asyncio.timeout(PATIENCE_S), server(script) as bad, stage(bad.address, pace=PATIENT) as s:
            await s.until(lambda: s.candidate(bad.address).fresh)
            s.ledger.open(s.candidate(bad.address), 10, 0.0)

            def interval_s() -> float:
                return next(value for r in s.scraper.readings() if "interval" in r.name for _, value in r.samples)

            await s.until(lambda: len(bad.heads) > 2)
            assert interval_s() > 10 * PATIENT.busy_s

    asyncio.run(scenario())
