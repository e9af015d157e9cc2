"""Requests to the Kubernetes API: read one object or page, write one, or follow a watch. Each has a deadline.

Rejected: lightkube has no read timeout (a half-open connection hangs for ever) and asks for no bookmarks;
kubernetes-asyncio takes 160 times as long to decode a list, and 110 MB.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from importlib.metadata import version
from types import TracebackType
from typing import Literal, NamedTuple, Self, TypeVar

import aiohttp
import msgspec

from epp.kube.access import Access, shown
from epp.kube.connections import Connections
from epp.kube.errors import (
    KubeError,
    NoConnection,
    Refused,
    TooLarge,
    Unreachable,
    distrust,
    excerpt,
    refusal,
    seconds_in,
    system_words,
)
from epp.kube.objects import Decoder, Decodes, Status
from epp.kube.unreadable import Unreadable
from epp.runtime.logs import USERINFO

T = TypeVar("T")

ANSWER_S = 30.0
"""The longest that an answer may take. A page of 125 pods takes the API server 20 to 80 ms. A guess."""
SILENT_S = 150.0
"""The longest silence of a watch. The API server sends a bookmark about once a minute, so this is two that are missing.

Source: ``bookmarkFrequency`` in k8s.io/apiserver 0.35.
"""
MAX_BODY_BYTES = 64 << 20
"""The most bytes of an answer, or of one event. etcd refuses objects above 1.5 MB."""
MERGE_PATCH = "application/merge-patch+json"
_STATUS = Decoder(Status)


class _Request(NamedTuple):
    """One request, which may be sent twice: with a fresh token after the first was refused."""

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes | None = None
    secret: str = ""
    """The part of the body that no error may show; empty if there is none."""


class Page(NamedTuple):
    """An answer that is no object of the API."""

    status: int
    body: bytes
    date: str
    """When it was made, by the clock of what made it, as HTTP writes it; empty if that is not known."""


class Client:
    """One identity at one API server. Owner: the event loop; an async context manager, which closes its connections."""

    def __init__(self, access: Access, *, answer_s: float = ANSWER_S, silent_s: float = SILENT_S) -> None:
        self.access = access
        self.outage_of: object | None = None
        """Which of its users warned that there is no connection, so that the others need not; None for no outage."""
        self.on_forbidden: Callable[[str], None] | None = None
        """Called with the path of each request that is refused with 403."""
        self.unreadable = Unreadable()
        self._answer = aiohttp.ClientTimeout(total=answer_s)
        self._watch = aiohttp.ClientTimeout(total=None, sock_connect=answer_s, sock_read=silent_s)
        self._connections = Connections()
        self._token = b""  # the one that was sent last
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Make the session; no connection is opened yet."""
        # A watch holds its connection for minutes, so connections are not counted.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, socket_factory=self._connections.make),
            headers={
                "Accept": "application/json",
                "Accept-Encoding": "identity",  # a list is read once, and unpacking it would stall the event loop
                "User-Agent": f"tierwise/{version('tierwise')}",
            },
            raise_for_status=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close every connection at once."""
        if self._session is not None:
            await self._session.close()
        await self._connections.close()

    async def get(self, path: str, decoder: Decodes[T], query: Mapping[str, str] | None = None) -> T:
        """Return the object or page at ``path``. Raises: KubeError; ConfigError for credentials that cannot be read."""
        return await self._exchange(_Request("GET", path, query or {}), decoder)

    async def send(
        self, method: Literal["POST", "PUT", "PATCH"], path: str, body: object, decoder: Decoder[T], *, secret: str = ""
    ) -> T:
        """Write ``body`` at ``path``, and return the answer, which is the object as the API server has it now.

        POST creates an object, or asks for a review. PUT replaces the version that ``body`` names. PATCH is a JSON
        merge patch: it sets the fields in ``body``, and removes each field whose value is None. A write that failed
        with ``Unreachable`` may have been done or not. No error shows ``secret``, a part of ``body``: a proxy in
        between may answer with what it was sent.
        Raises: KubeError (``Refused`` with status 409 where the object has another version, or exists already);
        ConfigError for credentials that cannot be read.
        """
        return await self._exchange(_Request(method, path, {}, msgspec.json.encode(body), secret), decoder)

    async def page(self, path: str, query: Mapping[str, str] | None = None) -> Page:
        """Return what is at ``path``, which may be a pod's own page behind ``/proxy/``; a pod's refusal is a page too.

        Raises: KubeError, for a refusal of the API server itself; ConfigError as ``get`` does.
        """
        request = _Request("GET", path, query or {})
        async with self._opened(request, self._answer, refusals=False) as response:
            body = await self._body(request, response)
            if response.status >= 400 and response.content_type == "application/json":
                with suppress(msgspec.DecodeError):
                    if (status := _STATUS.decode(body)).message:
                        raise refusal(self._name(request), status, response.status)
            return Page(response.status, body, response.headers.get("Date", ""))

    async def _exchange(self, request: _Request, decoder: Decodes[T]) -> T:
        async with self._opened(request, self._answer) as response:
            body = await self._body(request, response)
            try:
                return decoder.decode(body)
            except msgspec.DecodeError as error:
                raise Unreachable(
                    f"{self._name(request)}: the answer is not the API's: {error}: {self._answered(request, body)}; "
                    "is a proxy in between?"
                ) from error

    @asynccontextmanager
    async def watch(self, path: str, query: Mapping[str, str], decoder: Decodes[T]) -> AsyncIterator[AsyncGenerator[T]]:
        """Open a watch, and return its events, each a line that ``decoder`` decodes, until the API server ends it.

        Raises: KubeError when it is refused, cut off, silent for too long, or sends what is not an event.
        """
        async with (
            self._opened(_Request("GET", path, {**query, "watch": "1"}), self._watch) as response,
            aclosing(self._events(path, response, decoder)) as events,
        ):
            yield events

    async def _events(self, path: str, response: aiohttp.ClientResponse, decoder: Decodes[T]) -> AsyncGenerator[T]:
        rest, size = list[bytes](), 0  # the pieces of a line that has not ended: joined once, or it would be quadratic
        async for chunk in response.content.iter_any():
            first, *further = chunk.split(b"\n")
            rest.append(first)
            size += len(first)
            if size > MAX_BODY_BYTES:
                raise TooLarge(f"watch {path}: an event of more than {MAX_BODY_BYTES:,} bytes")
            if not further:
                continue
            lines = (b"".join(rest), *further[:-1])
            rest, size = [further[-1]], len(further[-1])
            for line in lines:
                if not line.strip():
                    continue
                try:
                    event = decoder.decode(line)
                except msgspec.DecodeError as error:
                    raise Unreachable(f"watch {path}: this is no event: {error}: {excerpt(line)}") from error
                yield event
        if size:
            raise Unreachable(f"watch {path}: cut off in the middle of an event: {excerpt(b''.join(rest))}")

    @asynccontextmanager
    async def _opened(
        self, request: _Request, limits: aiohttp.ClientTimeout, *, refusals: bool = True
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open a response that is no refusal, after a second try with a fresh token where the first was a 401.

        Without ``refusals`` a response with any status is opened.

        Raises: KubeError, for everything that happens until the caller has read the response.
        """
        what = self._name(request)
        try:
            response = await self._request(request, limits, renew=False)
            if response.status == 401:
                response.release()
                response = await self._request(request, limits, renew=True)
            try:
                if refusals and not 200 <= response.status < 300:
                    raise await self._refusal(request, response)
                yield response
            finally:
                if response.connection is not None and response.connection.transport is not None:
                    response.connection.transport.abort()  # in the middle of an answer: its rest is not waited for
                response.close()
        except (aiohttp.ClientConnectorCertificateError, ssl.SSLError) as error:
            raise Unreachable(f"{what}: its certificate is {distrust(error)}") from error
        except TimeoutError as error:
            seconds = limits.total or limits.sock_read
            raise Unreachable(f"{what}: nothing came for {seconds:g} s; check the network to the API server") from error
        except aiohttp.ClientConnectorError as error:
            where = f"{error.host}:{error.port}"
            raise NoConnection(f"{what}: no connection to {where}: {system_words(error.os_error)}") from error
        except (aiohttp.ClientError, OSError) as error:
            # Of an answer that is not HTTP, or of a proxy's refusal, the text has a piece, or the proxy's URL.
            text = "" if request.secret and isinstance(error, aiohttp.ClientResponseError) else str(error)
            raise Unreachable(f"{what}: {USERINFO.sub('', text) or type(error).__name__}") from error

    def _name(self, request: _Request) -> str:
        """Return how errors call a request."""
        return f"{'watch' if 'watch' in request.query else request.method} {shown(self.access.server)}{request.path}"

    async def _request(
        self, request: _Request, limits: aiohttp.ClientTimeout, *, renew: bool
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            raise RuntimeError("the client is used outside of its context")
        async with asyncio.timeout(self._answer.total):  # not wait_for, which can lose a cancellation in Python 3.11
            headers = dict(await self.access.headers(renew=renew))
        self._token = headers.get("Authorization", "").rpartition(" ")[2].encode()
        if request.body is not None:
            headers["Content-Type"] = MERGE_PATCH if request.method == "PATCH" else "application/json"
        tls = self.access.tls()
        return await self._session.request(
            request.method,
            self.access.server + request.path,
            params=request.query,
            data=request.body,
            headers=headers,
            timeout=limits,
            allow_redirects=False,
            ssl=True if tls is None else tls,
            server_hostname=self.access.tls_name,
            proxy=self.access.proxy,
        )

    async def _body(self, request: _Request, response: aiohttp.ClientResponse) -> bytes:
        """Return the whole body. Raises: TooLarge if it is larger than ``MAX_BODY_BYTES``."""
        parts, size = [], 0
        async for chunk in response.content.iter_any():
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                raise TooLarge(f"{self._name(request)}: an answer of more than {MAX_BODY_BYTES:,} bytes")
            parts.append(chunk)
        return b"".join(parts)

    def _answered(self, request: _Request, body: bytes) -> str:
        """Return what errors show of an answer: never a secret that a proxy repeats."""
        if request.secret:
            return "an answer that is not shown, since the request has a secret"
        return excerpt(body.replace(self._token, b"...") if self._token else body)

    async def _refusal(self, request: _Request, response: aiohttp.ClientResponse) -> KubeError:
        if response.status == 403 and self.on_forbidden is not None:
            self.on_forbidden(request.path)
        what, body = self._name(request), await self._body(request, response)
        try:
            status = _STATUS.decode(body)
        except msgspec.DecodeError:
            status = Status()
        if not status.message:
            return Refused(
                f"{what}: {response.status} {response.reason}: {self._answered(request, body)}; is a proxy in between?",
                status=response.status,
                retry_after_s=seconds_in(response.headers.get("Retry-After")),
            )
        if request.secret:
            status = msgspec.structs.replace(status, message=status.message.replace(request.secret, "..."))
        return refusal(what, status, response.status, seconds_in(response.headers.get("Retry-After")))
