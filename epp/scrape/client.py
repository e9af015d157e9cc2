"""Fetches metrics pages over kept connections."""

from __future__ import annotations

import ssl

import aiohttp
from yarl import URL

from epp.config.plan import ScrapeParameters
from epp.errors import ConfigError
from epp.pool import Endpoint
from epp.scrape.reader import ScrapeError

MAX_PAGE_BYTES = 8 << 20
_HEADERS = {"Accept": "text/plain; version=0.0.4", "Accept-Encoding": "identity"}  # inflating costs more than reading


class Client:
    """One session for all endpoints. Made on the event loop that owns it."""

    def __init__(self, parameters: ScrapeParameters, timeout_s: float) -> None:
        """Raises: ConfigError for certificates that cannot be read."""
        self._parameters = parameters
        self._timeout_s = timeout_s
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, limit_per_host=2, ssl=_ssl(parameters)),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=timeout_s),
            headers=_HEADERS,
            read_bufsize=1 << 18,
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()

    def url(self, endpoint: Endpoint) -> URL:
        """Where the metrics of ``endpoint`` are. Raises: ScrapeError for a ``metrics_url`` that is none."""
        parameters = self._parameters
        host, _, port = endpoint.address.rpartition(":")
        text = endpoint.metrics_url or f"{parameters.scheme}://{host}:{parameters.port or port}{parameters.path}"
        try:
            return URL(text)
        except ValueError as error:
            raise ScrapeError(f"{text!r} is not a URL: {error}") from error

    async def fetch(self, url: URL) -> bytes:
        """The page at ``url``. Raises: ScrapeError, for everything that can go wrong on the way."""
        try:
            async with self._session.get(url, allow_redirects=False) as response:
                if response.status != 200:
                    raise ScrapeError(f"{url} answers with status {response.status}", reason="status")
                return await _body(url, response)
        except TimeoutError as error:
            raise ScrapeError(f"{url} takes more than {self._timeout_s:g} s", reason="timeout") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ScrapeError(f"{url}: {str(error) or type(error).__name__}", reason="connection") from error


async def _body(url: URL, response: aiohttp.ClientResponse) -> bytes:
    parts, size = [], 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > MAX_PAGE_BYTES:
            raise ScrapeError(f"{url} sends more than {MAX_PAGE_BYTES >> 20} MiB", reason="size")
        parts.append(part)
    return b"".join(parts)


def _ssl(parameters: ScrapeParameters) -> ssl.SSLContext | bool:
    """How servers are checked and who we say we are."""
    if parameters.scheme != "https":
        return True
    try:
        context = ssl.create_default_context(cafile=parameters.ca_cert_path or None)
        if parameters.client_cert_path:
            context.load_cert_chain(parameters.client_cert_path, parameters.client_key_path or None)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"certificates for reading metrics: {error}; check the paths of metrics-data-source"
        ) from error
    if parameters.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
