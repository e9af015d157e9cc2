"""Close every connection of a client at once, those in the middle of a TLS handshake or a TLS shutdown too.

aiohttp closes a connection that its server asked to close with a TLS shutdown, and then forgets it: the socket stays
open until the server answers, for 30 seconds at most, and leaks where the event loop ends before. asyncio of Python
3.11 forgets a connection whose opening was cancelled before its handshake began. So the sockets are kept here.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any
from weakref import WeakSet

PATIENCE_S = 1.0
"""How long to wait for the event loop to close sockets that were shut down. It needs a turn or two. A guess."""


class Connections:
    """The sockets of one client. Owner: the event loop."""

    def __init__(self) -> None:
        self._sockets = WeakSet[socket.socket]()

    def make(self, address: tuple[Any, ...]) -> socket.socket:
        """Return a new socket for an entry of ``getaddrinfo``, and keep it; aiohttp's ``socket_factory``."""
        family, kind, protocol, *_ = address
        made = socket.socket(family, kind, protocol)
        self._sockets.add(made)
        return made

    async def close(self) -> None:
        """Shut every socket down that is still open, and wait until the event loop has closed them."""
        for one in tuple(self._sockets):
            with suppress(OSError):  # it is closed, or was never connected
                one.shutdown(socket.SHUT_RDWR)  # its transport reads the end of the stream, and closes
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while any(one.fileno() >= 0 for one in tuple(self._sockets)):  # noqa: ASYNC110 - a transport announces nothing
                    await asyncio.sleep(0)
