"""Where connections come in, and what can be told of those that fail before they are any: TLS where none is spoken,
none where it is, handshakes without agreement.

A server of the event loop's own would do the handshakes, and keep their failures and whose they were to itself. So it
accepts only, and each connection's socket is duplicated and encrypted here.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, cast

BACKLOG = 1024
MAX_HANDSHAKES, HANDSHAKE_S = 1024, 10.0
"""How many TLS handshakes may be under way, and how long one may take: a client that is silent has one for nothing."""

KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 90_000}
"""A peer that vanished without a word, with its node or behind a firewall, is noticed in 90 s: by probes when nothing
is under way, else by what it does not acknowledge. Units: seconds, and milliseconds for the last. Accepted sockets
inherit them from the listening one (Linux)."""

_HTTP1 = re.compile(rb"(?!PRI )[A-Z]{3,7} ")


class Failure(Enum):
    """Why a connection came to nothing; the value is its label on the metrics page."""

    TLS_TO_PLAINTEXT = "tls-to-plaintext"
    HTTP1 = "http1"
    PLAINTEXT_TO_TLS = "plaintext-to-tls"
    VERSION = "version"
    CIPHER = "cipher"
    CLIENT_CERTIFICATE = "client-certificate"
    OUR_CERTIFICATE = "our-certificate"
    ALPN = "alpn"
    HANDSHAKE = "handshake"
    HANDSHAKES = "too-many-handshakes"


class Failed(NamedTuple):
    """One connection that failed."""

    failure: Failure
    host: str
    """The client's address."""
    port: int
    """Ours."""
    reason: str = ""
    """What OpenSSL calls it."""


Report = Callable[[Failed], None]
Factory = Callable[[], asyncio.BaseProtocol]

_REASONS = {
    Failure.PLAINTEXT_TO_TLS: ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST"),
    Failure.VERSION: ("UNSUPPORTED_PROTOCOL", "VERSION_TOO_LOW", "TLSV1_ALERT_PROTOCOL_VERSION"),
    Failure.CIPHER: ("NO_SHARED_CIPHER", "NO_CIPHERS_SPECIFIED"),
    Failure.CLIENT_CERTIFICATE: ("CERTIFICATE_VERIFY_FAILED", "PEER_DID_NOT_RETURN_A_CERTIFICATE"),
    Failure.OUR_CERTIFICATE: (
        "TLSV1_ALERT_UNKNOWN_CA",
        "SSLV3_ALERT_BAD_CERTIFICATE",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED",
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
        "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE",
    ),
}
"""Source: OpenSSL 3.0's names; any other reason is a HANDSHAKE."""
_FAILURES = {reason: failure for failure, reasons in _REASONS.items() for reason in reasons}


def nobody(_: Failed) -> None:
    """Hears of failed connections and does nothing."""


class Door:
    """A listening port. Owner: the event loop that opens it.

    Invariant: every connection that it accepted is the factory's protocol's, in a handshake, or closed.
    """

    def __init__(self, server: asyncio.Server, handshakes: set[asyncio.Task[None]]) -> None:
        self._server = server
        self._handshakes = handshakes
        self.port = int(server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Let nobody in any more; who is in stays, and may end a handshake."""
        self._server.close()

    def abandon(self) -> None:
        """Break off the handshakes that are under way."""
        for handshake in self._handshakes:
            handshake.cancel()


async def open_door(
    factory: Factory,
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None,
    report: Report,
    http1: bool,
    max_handshakes: int = MAX_HANDSHAKES,
) -> Door:
    """Listen; ``http1`` says whether this port speaks it. Raises: OSError."""
    loop = asyncio.get_running_loop()
    handshakes: set[asyncio.Task[None]] = set()

    def entrance() -> asyncio.Protocol:
        if tls is None:
            return _Plain(cast("asyncio.Protocol", factory()), report, http1=http1)
        return _Encrypted(factory, tls, report, handshakes, max_handshakes)

    server = await loop.create_server(entrance, host, port, backlog=BACKLOG)
    for listening in server.sockets:
        _keep_alive(listening)
    return Door(server, handshakes)


def _keep_alive(listening: socket.socket) -> None:
    """Probe whether peers are still there, as far as this system can."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if (option := getattr(socket, name, None)) is not None:
            listening.setsockopt(socket.IPPROTO_TCP, option, value)


class _Plain(asyncio.Protocol):
    """Looks at a connection's first bytes, and is out of the way from then on."""

    def __init__(self, inner: asyncio.Protocol, report: Report, *, http1: bool) -> None:
        self._inner = inner
        self._report = report
        self._http1 = http1
        self.pause_writing, self.resume_writing = inner.pause_writing, inner.resume_writing  # type: ignore[method-assign]
        self.eof_received, self.connection_lost = inner.eof_received, inner.connection_lost  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # what create_server gives, under uvloop in name only
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._transport.set_protocol(self._inner)
        if data[:2] in (b"\x16\x03", b"\x16"):  # a handshake's record
            self._report(_failed(Failure.TLS_TO_PLAINTEXT, self._transport))
        elif not self._http1 and _HTTP1.match(data):
            self._report(_failed(Failure.HTTP1, self._transport))
        self._inner.data_received(data)


class _Encrypted(asyncio.Protocol):
    """Hands a connection's socket to a handshake whose end is seen."""

    def __init__(
        self, factory: Factory, tls: ssl.SSLContext, report: Report, handshakes: set[asyncio.Task[None]], most: int
    ) -> None:
        self._factory = factory
        self._tls = tls
        self._report = report
        self._handshakes = handshakes
        self._most = most

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        unknown = _failed(Failure.HANDSHAKE, transport)
        if len(self._handshakes) >= self._most:
            self._report(unknown._replace(failure=Failure.HANDSHAKES))
            cast("asyncio.Transport", transport).abort()
            return
        try:
            own = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        except OSError as error:  # no descriptor is left
            self._report(unknown._replace(reason=str(error)))
            return
        finally:
            cast("asyncio.Transport", transport).abort()  # nothing was read; the connection lives in the duplicate
        own.setblocking(False)
        task = asyncio.get_running_loop().create_task(self._shake_hands(own, unknown))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, own: socket.socket, unknown: Failed) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._factory, own, ssl=self._tls, ssl_handshake_timeout=HANDSHAKE_S
            )
        except ssl.SSLError as error:
            reason = str(error.reason or error)
            failure = _FAILURES.get(reason, Failure.HANDSHAKE)
            self._report(unknown._replace(failure=failure, reason=reason.replace("_", " ").lower()))
        except OSError:  # it left, or was silent for too long: whoever looks whether the port is open does that
            own.close()


def failed_alpn(transport: asyncio.BaseTransport) -> Failed:
    """What to report of a client that did not choose HTTP/2."""
    return _failed(Failure.ALPN, transport)


def _failed(failure: Failure, transport: asyncio.BaseTransport) -> Failed:
    peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    return Failed(failure, str(peer[0]) if peer else "somebody", int(own[1]) if own else 0)
