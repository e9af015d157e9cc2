"""Requests to the Kubernetes API: read one object or page, or follow a watch. Every read has a deadline.

Rejected: lightkube has no read timeout (a half-open connection hangs for ever) and asks for no bookmarks;
kubernetes-asyncio takes 160 times as long to decode a list, and 110 MB.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from importlib.metadata import version
from types import TracebackType
from typing import Self, TypeVar

import aiohttp
import msgspec

from epp.kube.access import Access
from epp.kube.errors import KubeError, Refused, Unreachable
from epp.kube.objects import Decoder, Status, WatchEvent

T = TypeVar("T")

ANSWER_S = 30.0
"""The longest that a page of a list may take. A page of 500 pods takes the API server well below a second. A guess."""
SILENT_S = 150.0
"""The longest silence of a watch. The API server sends a bookmark about once a minute, so this is two that are missing.

Source: ``bookmarkFrequency`` in k8s.io/apiserver 0.35.
"""
MAX_BODY_BYTES = 64 << 20
"""The most bytes of an answer, or of one event. etcd refuses objects above 1.5 MB; a page has 500 at most."""
_SHOWN = 200
"""How many characters of an answer that is not the API's own an error shows."""
_STATUS = Decoder(Status)
_EVENT = Decoder(WatchEvent)


class Client:
    """One identity at one API server. Owner: the event loop; an async context manager, which closes its connections."""

    def __init__(self, access: Access, *, answer_s: float = ANSWER_S, silent_s: float = SILENT_S) -> None:
        self.access = access
        self._answer = aiohttp.ClientTimeout(total=answer_s)
        self._watch = aiohttp.ClientTimeout(total=None, sock_connect=answer_s, sock_read=silent_s)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Make the session; no connection is opened yet."""
        # A watch holds its connection for minutes, so connections are not counted.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            headers={"Accept": "application/json", "User-Agent": f"tierwise/{version('tierwise')}"},
            raise_for_status=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close every connection at once."""
        if self._session is not None:
            await self._session.close()
            await asyncio.sleep(0)  # connections that were aborted are closed in the loop's next turn

    async def get(self, path: str, decoder: Decoder[T], query: Mapping[str, str] | None = None) -> T:
        """Return the object or page at ``path``. Raises: KubeError; ConfigError for credentials that cannot be read."""
        async with self._opened(path, query or {}, self._answer) as response:
            body = await self._body(response)
            try:
                return decoder.decode(body)
            except msgspec.DecodeError as error:
                raise Unreachable(
                    f"GET {self.access.server}{path}: the answer is not the API's: {error}: {_shown(body)}; "
                    "is a proxy in between?"
                ) from error

    @asynccontextmanager
    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[AsyncGenerator[WatchEvent]]:
        """Open a watch, and return its events until the API server ends it.

        Raises: KubeError when it is refused, cut off, silent for too long, or sends what is not an event.
        """
        async with (
            self._opened(path, {**query, "watch": "1"}, self._watch) as response,
            aclosing(self._events(path, response)) as events,
        ):
            yield events

    async def _events(self, path: str, response: aiohttp.ClientResponse) -> AsyncGenerator[WatchEvent]:
        rest, size = list[bytes](), 0  # the pieces of a line that has not ended: joined once, or it would be quadratic
        async for chunk in response.content.iter_any():
            first, *further = chunk.split(b"\n")
            rest.append(first)
            size += len(first)
            if size > MAX_BODY_BYTES:
                raise Unreachable(f"watch {path}: an event of more than {MAX_BODY_BYTES:,} bytes")
            if not further:
                continue
            lines = (b"".join(rest), *further[:-1])
            rest, size = [further[-1]], len(further[-1])
            for line in lines:
                if line.strip():
                    yield self._event(path, line)
        if size:
            raise Unreachable(f"watch {path}: cut off in the middle of an event: {_shown(b''.join(rest))}")

    def _event(self, path: str, line: bytes) -> WatchEvent:
        try:
            return _EVENT.decode(line)
        except msgspec.DecodeError as error:
            raise Unreachable(f"watch {path}: this is no event: {error}: {_shown(line)}") from error

    @asynccontextmanager
    async def _opened(
        self, path: str, query: Mapping[str, str], limits: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open a response with status 200, after a second try with a fresh token where the first was refused with 401.

        Raises: KubeError, for everything that happens until the caller has read the response.
        """
        what = f"{'watch' if 'watch' in query else 'GET'} {self.access.server}{path}"
        try:
            response = await self._request(path, query, limits, renew=False)
            if response.status == 401:
                response.release()
                response = await self._request(path, query, limits, renew=True)
            try:
                if response.status != 200:
                    raise await self._refusal(what, response)
                yield response
            finally:
                if response.connection is not None and response.connection.transport is not None:
                    response.connection.transport.abort()  # in the middle of an answer: its rest is not waited for
                response.close()
        except (aiohttp.ClientConnectorCertificateError, ssl.SSLError) as error:
            raise Unreachable(
                f"{what}: its certificate is not trusted: {error}; check the certificate authority"
            ) from error
        except TimeoutError as error:
            seconds = limits.total or limits.sock_read
            raise Unreachable(f"{what}: nothing came for {seconds:g} s; check the network to the API server") from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"{what}: {str(error) or type(error).__name__}") from error

    async def _request(
        self, path: str, query: Mapping[str, str], limits: aiohttp.ClientTimeout, *, renew: bool
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            raise RuntimeError("the client is used outside of its context")
        async with asyncio.timeout(self._answer.total):  # not wait_for, which can lose a cancellation in Python 3.11
            headers = await self.access.headers(renew=renew)
        tls = self.access.tls()
        return await self._session.get(
            self.access.server + path,
            params=query,
            headers=headers,
            timeout=limits,
            allow_redirects=False,
            ssl=True if tls is None else tls,
        )

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        """Return the whole body. Raises: Unreachable if it is larger than ``MAX_BODY_BYTES``."""
        parts, size = [], 0
        async for chunk in response.content.iter_any():
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                raise Unreachable(f"GET {response.url.path}: an answer of more than {MAX_BODY_BYTES:,} bytes")
            parts.append(chunk)
        return b"".join(parts)

    async def _refusal(self, what: str, response: aiohttp.ClientResponse) -> KubeError:
        body = await self._body(response)
        try:
            status = _STATUS.decode(body)
        except msgspec.DecodeError:
            status = Status()
        if not status.message:
            return Refused(
                f"{what}: {response.status} {response.reason}: {_shown(body)}; is a proxy in between?",
                status=response.status,
                retry_after_s=_seconds(response.headers.get("Retry-After")),
            )
        return refusal(what, status, response.status, _seconds(response.headers.get("Retry-After")))


def refusal(what: str, status: Status, code: int, retry_after_s: float | None = None) -> Refused:
    """Return the error for a refusal of the API, with the remedy where there is one that is always right."""
    remedy = {
        401: "; the token is missing, expired or of another cluster",
        403: "; a Role with this rule is missing, or its RoleBinding",
    }.get(code, "")
    wait = retry_after_s
    if wait is None and status.details is not None and status.details.retry_after_seconds > 0:
        wait = float(status.details.retry_after_seconds)
    text = f"{what}: {code} {status.reason}: {status.message}{remedy}"
    return Refused(text, status=code, reason=status.reason, retry_after_s=wait)


def _seconds(text: str | None) -> float | None:
    """Return the seconds of a ``Retry-After``; None for a date, which the API server does not use."""
    return float(text) if text is not None and text.isascii() and text.isdigit() else None


def _shown(body: bytes) -> str:
    text = body[: 4 * _SHOWN].decode("utf-8", "replace")
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
