"""Accepts connections, and reports those that fail before their first request.

These are clients that speak TLS to a plaintext port, or plaintext to a TLS port, and handshakes without agreement.

The event loop's own server would do the handshakes, but it does not expose their failures or the clients' addresses. So
that server only accepts, and each connection's socket is duplicated and encrypted here.
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
"""How many TLS handshakes may be in progress, and how long one may take: a silent client costs nothing to start one."""

KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 90_000}
"""A peer that vanished without a FIN, with its node or behind a firewall, is detected in 90 s: by probes while the
connection is idle, otherwise by data that is not acknowledged. Units: seconds, and milliseconds for the last.
Accepted sockets inherit the options from the listening one (Linux).
"""

_HTTP1 = re.compile(rb"(?!PRI )[A-Z]{3,7} ")


class Failure(Enum):
    """Why a connection failed; the value is its label on the metrics page."""

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
    """The port that it connected to."""
    reason: str = ""
    """OpenSSL's name of the failure."""


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


def unreported(_: Failed) -> None:
    """Ignore the report of a failed connection."""


class Door:
    """A listening port. Owner: the event loop that opens it.

    Invariant: every accepted connection belongs to a protocol of the factory, is in a handshake, or is closed.
    """

    def __init__(self, server: asyncio.Server, handshakes: set[asyncio.Task[None]]) -> None:
        self._server = server
        self._handshakes = handshakes
        self.port = int(server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Accept no more connections; open ones stay, and handshakes in progress may end."""
        self._server.close()

    def abandon(self) -> None:
        """Cancel the handshakes that are in progress."""
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
    """Listen and return the open port; ``http1`` is whether it serves HTTP/1. Raises: OSError."""
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
    """Turn on the probes for vanished peers that this system has."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if (option := getattr(socket, name, None)) is not None:
            listening.setsockopt(socket.IPPROTO_TCP, option, value)


class _Plain(asyncio.Protocol):
    """Looks at a connection's first bytes, and then hands the connection to the inner protocol."""

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
    """Duplicates a connection's socket for a handshake whose failure can be reported."""

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
        except OSError:  # the client left or was silent for too long, as port scanners and probes are
            own.close()


def failed_alpn(transport: asyncio.BaseTransport) -> Failed:
    """Return the report about a client that did not choose HTTP/2."""
    return _failed(Failure.ALPN, transport)


def _failed(failure: Failure, transport: asyncio.BaseTransport) -> Failed:
    peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    return Failed(failure, str(peer[0]) if peer else "somebody", int(own[1]) if own else 0)
