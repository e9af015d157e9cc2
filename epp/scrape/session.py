"""Fetches pages with aiohttp: over TLS, and for URLs with credentials."""

from __future__ import annotations

import ssl

import aiohttp
from typing_extensions import override
from yarl import URL

from epp.scrape.page import HEADERS, MAX_PAGE_BYTES, Page
from epp.scrape.reading.error import ScrapeError, encoded, refused, unconnected


def session(tls: ssl.SSLContext | bool, timeout_s: float) -> aiohttp.ClientSession:
    """Return the session for all pages. It must be made and closed on the event loop that owns it."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, limit_per_host=2, ssl=tls),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=timeout_s),
        headers=HEADERS,
        auto_decompress=False,
        read_bufsize=1 << 18,
    )


class SessionPage(Page):
    """A page at any URL. Its connections belong to the session, which closes them after 15 idle seconds."""

    def __init__(self, url: URL, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session

    @override
    async def fetch(self) -> bytes:
        url = self._url
        try:
            async with self._session.get(url, allow_redirects=False) as response:
                if response.status != 200:
                    raise refused(str(url), response.status)
                encoding = response.headers.get("Content-Encoding", "").strip().lower()
                if encoding not in ("", "identity"):
                    raise encoded(str(url), encoding)
                return await _body(url, response)
        except TimeoutError as error:
            limit_s = self._session.timeout.total or 0
            raise ScrapeError(f"{url} takes more than {limit_s:g} s", reason="timeout") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise unconnected(str(url), error) from error

    @override
    def close(self) -> None:
        pass


async def _body(url: URL, response: aiohttp.ClientResponse) -> bytes:
    parts, size = [], 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > MAX_PAGE_BYTES:
            raise ScrapeError(f"{url} sends more than {MAX_PAGE_BYTES >> 20} MiB", reason="size")
        parts.append(part)
    return b"".join(parts)
