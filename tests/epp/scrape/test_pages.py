"""The contract of a page, on both implementations and both event loops."""

from __future__ import annotations

import asyncio
import gzip
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

import pytest
import uvloop
from yarl import URL

from epp.scrape.answer import MAX_PARTS, Answers
from epp.scrape.page import Page
from epp.scrape.plain import PlainPage
from epp.scrape.reading.error import ScrapeError
from epp.scrape.session import SessionPage, session
from tests.epp.scrape.engines import mute
from tests.epp.scrape.servers import Script, Server, repeating, sending, server

PATIENCE_S = 20.0
TEXT = b"vllm:num_requests_running 1\n" * 100
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(TEXT), TEXT)
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n" + TEXT
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%b0\r\n\r\n" % b"".join(
    b"%x\r\n%b\r\n" % (len(TEXT[at : at + 700]), TEXT[at : at + 700]) for at in range(0, len(TEXT), 700)
)
LARGE = b"x" * (3 << 20)

Run = Callable[[Coroutine[object, object, None]], None]


@pytest.fixture(params=["plain", "session"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    return request.param  # type: ignore[no-any-return]


@asynccontextmanager
async def fetching(kind: str, url: str, timeout_s: float = PATIENCE_S) -> AsyncIterator[Page]:
    if kind == "plain":
        page: Page = PlainPage(URL(url), timeout_s)
        try:
            yield page
        finally:
            page.close()
    else:
        async with session(True, timeout_s) as shared:
            yield SessionPage(URL(url), shared)


@asynccontextmanager
async def served(kind: str, script: Script, timeout_s: float = PATIENCE_S) -> AsyncIterator[tuple[Page, Server]]:
    """Yield a page and its server, which must see every connection closed at the end."""
    async with asyncio.timeout(PATIENCE_S), server(script) as one, fetching(kind, one.url, timeout_s) as page:
        yield page, one


@pytest.mark.parametrize(
    ("script", "text"),
    [
        (sending(SIZED), TEXT),
        (sending(SIZED.replace(b"Content-Length", b"content-length")), TEXT),
        (sending(*[SIZED[at : at + 1] for at in range(len(SIZED))]), TEXT),
        (sending(CHUNKED), TEXT),
        (sending(CHUNKED.replace(b"\r\n0\r\n\r\n", b"\r\n0\r\nExpires: 0\r\n\r\n")), TEXT),
        (sending(*[CHUNKED[at : at + 7] for at in range(0, len(CHUNKED), 7)]), TEXT),
        (sending(UNTIL_CLOSE, stay=False), TEXT),
        (sending(UNTIL_CLOSE.replace(b"1.1", b"1.0"), stay=False), TEXT),
        (sending(SIZED.replace(b"1.1", b"1.0"), stay=False), TEXT),
        (sending(SIZED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), stay=False), TEXT),
        (sending(SIZED.replace(b"\r\n\r\n", b"\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n")), TEXT),
        (sending(b"HTTP/1.1 100 Continue\r\n\r\n" + SIZED), TEXT),
        (sending(b"HTTP/1.1 102 Processing\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n", SIZED), TEXT),
        (sending(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), b""),
        (sending(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(LARGE), LARGE), LARGE),
    ],
)
def test_every_way_to_send_a_page(kind: str, run: Run, script: Script, text: bytes) -> None:
    async def scenario() -> None:
        async with served(kind, script) as (page, _):
            for _ in range(3):
                assert await page.fetch() == text

    run(scenario())


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (sending(b"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nno\n"), "status"),
        (sending(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"), "status"),
        (sending(b"HTTP/1.1 204 No Content\r\n\r\n"), "status"),
        (sending(b"HTTP/1.1 500 Internal Server Error\r\n\r\n", stay=False), "status"),
        (sending(stay=False), "connection"),
        (sending(b"HTTP/1.1 200", stay=False), "connection"),
        (sending(SIZED[:-1], stay=False), "connection"),
        (sending(CHUNKED[:-300], stay=False), "connection"),
        (sending(CHUNKED[:-5], stay=False), "connection"),
        (sending(b"HTTP/1.1 100 Continue\r\n\r\n", stay=False), "connection"),
        (sending(b"\x15\x03\x01\x00\x02\x02\x0a"), "connection"),
        (sending(b"SSH-2.0-OpenSSH\r\n"), "connection"),
        (sending(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"), "connection"),
        (sending(CHUNKED.replace(b"\r\n0\r\n", b"\r\nzz\r\n")), "connection"),
        (repeating(b"HTTP/1.1 200 OK\r\nX: ", b"x" * 10_000), "connection"),
        (repeating(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 1_000_000), "size"),
        (
            repeating(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"F4240\r\n%b\r\n" % (b"x" * 10**6)),
            "size",
        ),
    ],
)
def test_every_way_to_fail_has_its_reason_and_leaves_no_connection(
    kind: str, run: Run, script: Script, reason: str
) -> None:
    async def scenario() -> None:
        async with served(kind, script) as (page, one):
            for _ in range(2):
                with pytest.raises(ScrapeError, match=one.address) as caught:
                    await page.fetch()
                assert caught.value.reason == reason
                if kind == "plain":
                    await one.until_all_are_closed()

    run(scenario())


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\n", SIZED[:-1], CHUNKED[:-5]])
def test_an_answer_that_does_not_come_is_given_up_and_the_next_is_not_taken_for_it(
    kind: str, run: Run, sent: bytes
) -> None:
    async def first_hangs(writer: asyncio.StreamWriter, request: int) -> bool:
        writer.write(SIZED if request > 1 else sent)
        return True

    async def scenario() -> None:
        async with served(kind, first_hangs, timeout_s=0.2) as (page, one):
            with pytest.raises(ScrapeError, match=r"takes more than 0\.2 s") as caught:
                await page.fetch()
            assert caught.value.reason == "timeout"
            assert await page.fetch() == TEXT
            assert one.connections == 2

    run(scenario())


def test_connections_are_kept(kind: str, run: Run) -> None:
    async def scenario() -> None:
        for answer in (SIZED, CHUNKED, b"HTTP/1.1 100 Continue\r\n\r\n" + SIZED):
            async with served(kind, sending(answer)) as (page, one):
                for _ in range(5):
                    await page.fetch()
                assert one.connections == 1

    run(scenario())


def test_a_kept_connection_that_the_server_closes_in_between_is_no_error(kind: str, run: Run) -> None:
    async def scenario() -> None:
        async with served(kind, sending(SIZED, stay=False)) as (page, _):
            for _ in range(5):
                assert await page.fetch() == TEXT

    run(scenario())


def test_a_request_that_meets_the_end_of_a_kept_connection_is_sent_again(kind: str, run: Run) -> None:
    async def every_other(writer: asyncio.StreamWriter, request: int) -> bool:
        if request % 2:
            writer.write(SIZED)
        return request % 2 == 1

    async def scenario() -> None:
        async with served(kind, every_other) as (page, one):
            for _ in range(4):
                assert await page.fetch() == TEXT
            assert (one.connections, len(one.heads)) == (4, 7)

    run(scenario())


def test_the_response_to_a_cancelled_fetch_is_dropped(kind: str, run: Run) -> None:
    asked = asyncio.Event()

    async def first_hangs(writer: asyncio.StreamWriter, request: int) -> bool:
        asked.set()
        if request > 1:
            writer.write(SIZED)
        return True

    async def scenario() -> None:
        async with served(kind, first_hangs) as (page, one):
            task = asyncio.create_task(page.fetch())
            await asked.wait()
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            assert await page.fetch() == TEXT
            assert one.connections == 2

    run(scenario())


def test_the_request_says_where_to_and_that_it_takes_plain_text(kind: str, run: Run) -> None:
    async def scenario() -> None:
        async with served(kind, sending(SIZED)) as (page, one):
            await page.fetch()
            lines = one.heads[0].split("\r\n")
            assert lines[0] == "GET /metrics?a=b%20c HTTP/1.1"
            assert {f"Host: {one.address}", "Accept: text/plain; version=0.0.4", "Accept-Encoding: identity"} <= {
                *lines
            }

    run(scenario())


@pytest.mark.parametrize(("host", "name"), [("127.0.0.1", "localhost"), ("::1", "[::1]")])
def test_addresses_may_be_names_or_of_ipv6(kind: str, run: Run, host: str, name: str) -> None:
    async def scenario() -> None:
        async with server(sending(SIZED), host) as one:
            url = str(URL(one.url).with_host(name.strip("[]")))
            async with fetching(kind, url) as page:
                assert await page.fetch() == TEXT
            assert f"Host: {name}:{URL(url).port}\r\n" in one.heads[0]

    run(scenario())


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/metrics", f"http://{'a' * 64}.b:81/metrics"])
def test_what_cannot_be_reached_is_a_failed_connection(kind: str, run: Run, url: str) -> None:
    async def scenario() -> None:
        async with fetching(kind, url) as page:
            with pytest.raises(ScrapeError, match=url) as caught:
                await page.fetch()
            assert caught.value.reason == "connection"

    run(scenario())


def test_failing_again_and_again_keeps_no_files_open(kind: str, run: Run) -> None:
    def files() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    async def scenario() -> None:
        with mute() as address:
            async with fetching(kind, f"http://{address}/metrics", timeout_s=0.01) as page:
                before = files()
                for _ in range(10):
                    with pytest.raises(ScrapeError):
                        await page.fetch()
                assert files() <= before + 2

    run(scenario())


def test_more_than_was_asked_for_ends_a_plain_connection(run: Run) -> None:
    async def scenario() -> None:
        async with served("plain", sending(SIZED + SIZED)) as (page, one):
            for _ in range(3):
                assert await page.fetch() == TEXT
            assert one.connections == 3

    run(scenario())


def test_a_page_that_is_encoded_unasked_is_refused_however_small(kind: str, run: Run) -> None:
    bomb = gzip.compress(b"x" * (64 << 20), compresslevel=1)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)

    async def scenario() -> None:
        async with served(kind, sending(head, bomb, stay=False)) as (page, _):
            with pytest.raises(ScrapeError, match="encoded as 'gzip', unasked") as caught:
                await page.fetch()
            assert caught.value.reason == "page"

    run(scenario())


def test_a_page_in_too_many_pieces_is_refused() -> None:
    answers = Answers("x")
    answers.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert answers.feed(b"1\r\nx\r\n" * MAX_PARTS) is None
    with pytest.raises(ScrapeError, match=f"more than {MAX_PARTS} pieces"):
        answers.feed(b"1\r\nx\r\n")
