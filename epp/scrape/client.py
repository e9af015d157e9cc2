"""Chooses the URL of an endpoint's page, and the client that fetches it."""

from __future__ import annotations

import ssl

import aiohttp
from yarl import URL

from epp.errors import ConfigError
from epp.pool.pool import Endpoint
from epp.scrape.page import Page
from epp.scrape.parameters import ScrapeParameters
from epp.scrape.plain import PlainPage
from epp.scrape.reading.error import ScrapeError
from epp.scrape.session import SessionPage, session


class Client:
    """Makes the objects that fetch pages of endpoints. Owner: the event loop that it was made on."""

    def __init__(self, parameters: ScrapeParameters, timeout_s: float) -> None:
        """Load the certificates that ``parameters`` name. Raises: ConfigError if they cannot be read."""
        self._parameters = parameters
        self._timeout_s = timeout_s
        self._tls = _ssl(parameters)
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close every connection that does not belong to a single page."""
        if self._session is not None:
            await self._session.close()

    def page(self, endpoint: Endpoint) -> Page:
        """Return what fetches the metrics page of ``endpoint``. Raises: ScrapeError for an invalid ``metrics_url``."""
        return self._page(self._url(endpoint))

    def model_list(self, endpoint: Endpoint) -> Page:
        """Return what fetches the list of models of ``endpoint`` at its serving port, over TLS if its metrics page is
        at the same port over TLS. Raises: ScrapeError."""
        metrics = self._url(endpoint)
        _, _, port = endpoint.address.rpartition(":")
        scheme = metrics.scheme if metrics.port == int(port) else "http"
        return self._page(URL(f"{scheme}://{endpoint.address}/v1/models"))

    def _page(self, url: URL) -> Page:
        if url.scheme == "http" and url.raw_host and not url.raw_user and not url.raw_password:
            return PlainPage(url, self._timeout_s)
        if self._session is None:
            self._session = session(self._tls, self._timeout_s)
        return SessionPage(url, self._session)

    def elsewhere(self, endpoint: Endpoint) -> bool:
        """Return whether the metrics page of ``endpoint`` is at another address than its API. Raises: ScrapeError."""
        url = self._url(endpoint)
        host, _, port = endpoint.address.rpartition(":")
        return (url.raw_host, url.port) != (host.strip("[]").lower(), int(port))

    def _url(self, endpoint: Endpoint) -> URL:
        parameters = self._parameters
        host, _, port = endpoint.address.rpartition(":")
        text = endpoint.metrics_url or f"{parameters.scheme}://{host}:{parameters.port or port}{parameters.path}"
        try:
            return URL(text)
        except ValueError as error:
            raise ScrapeError(f"{text!r} is not a URL: {error}") from error


def _ssl(parameters: ScrapeParameters) -> ssl.SSLContext | bool:
    """Return how servers are verified, and with which client certificate."""
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
