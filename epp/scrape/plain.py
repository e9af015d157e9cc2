"""Fetches pages over plain HTTP, each over its own kept-alive connection.

Rejected: aiohttp, which takes several times as long for a small page, mostly for features that a fixed request to a
fixed address does not need. Source: benchmarks/picker/idle_scrape.py, 2 shared cores, 2026-11-21.
"""

from __future__ import annotations

import asyncio

from typing_extensions import override
from yarl import URL

from epp.scrape.answer import Answers, Unanswered
from epp.scrape.page import HEADERS, Page
from epp.scrape.reading.error import ScrapeError, unconnected


class PlainPage(Page):
    """A page at an ``http`` URL, with at most one open connection."""

    def __init__(self, url: URL, timeout_s: float) -> None:
        """``timeout_s`` is the limit for a whole fetch."""
        self._url = str(url)
        self._host, self._port = url.raw_host or "", url.port or 80
        self._timeout_s = timeout_s
        self._request = _request(url)
        self._connection: _Connection | None = None

    @override
    async def fetch(self) -> bytes:
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        kept = self._connection
        if kept is not None and kept.open:
            try:
                return await kept.exchange(self._request, deadline)
            except Unanswered:
                pass  # the server closed the idle connection while the request was under way
        connection = self._connection = await self._connect(deadline)
        return await connection.exchange(self._request, deadline)

    @override
    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    async def _connect(self, deadline: float) -> _Connection:
        """Return a new connection. Raises: ScrapeError."""
        try:
            async with asyncio.timeout_at(deadline):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: _Connection(self._url, self._timeout_s), self._host, self._port
                )
        except TimeoutError as error:
            raise _late(self._url, self._timeout_s) from error
        except (OSError, ValueError) as error:
            raise unconnected(self._url, error) from error
        return connection


class _Connection(asyncio.Protocol):
    """One connection. Invariant: while ``_waiter`` is set, the response to one request is awaited."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self.open = True
        self._url, self._timeout_s = url, timeout_s
        self._answers = Answers(url)
        self._transport: asyncio.Transport  # once made
        self._waiter: asyncio.Future[bytes] | None = None

    async def exchange(self, request: bytes, deadline: float) -> bytes:
        """Send ``request`` and return the page. Raises: ScrapeError; the connection is closed then."""
        if not self.open:
            raise self._answers.unanswered()
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_at(deadline, self._time_out)
        self._answers.expect()
        self._transport.write(request)
        try:
            page = await self._waiter
        except BaseException:  # the response may still arrive after the caller has given up
            self.close()
            raise
        finally:
            self._waiter = None
            timer.cancel()
        if not self._answers.keep:
            self.close()
        return page

    def close(self) -> None:
        """Close the connection at once."""
        self.open = False
        self._transport.abort()

    def _settle(self, result: bytes | ScrapeError) -> None:
        if self._waiter is None or self._waiter.done():
            return
        if isinstance(result, ScrapeError):
            self._waiter.set_exception(result)
        else:
            self._waiter.set_result(result)

    def _time_out(self) -> None:
        self._settle(_late(self._url, self._timeout_s))

    # asyncio.Protocol

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    @override
    def data_received(self, data: bytes) -> None:
        if self._waiter is None:  # no request is under way
            self.close()
            return
        try:
            page = self._answers.feed(data)
        except ScrapeError as error:
            self._settle(error)
            self.close()
            return
        if page is not None:
            self._settle(page)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        if self._waiter is not None and not self._waiter.done():
            self._settle(self._last(exc))
        self._answers.drop()

    def _last(self, exc: Exception | None) -> bytes | ScrapeError:
        """Return the page or the error that the end of the connection leads to."""
        try:
            page = self._answers.end()
        except ScrapeError as error:
            return error
        return ScrapeError(f"{self._url}: {exc}", reason="connection") if exc else page


def _request(url: URL) -> bytes:
    lines = [f"GET {url.raw_path_qs} HTTP/1.1", f"Host: {url.host_port_subcomponent}"]
    lines += [f"{name}: {value}" for name, value in HEADERS.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def _late(url: str, timeout_s: float) -> ScrapeError:
    return ScrapeError(f"{url} takes more than {timeout_s:g} s", reason="timeout")
