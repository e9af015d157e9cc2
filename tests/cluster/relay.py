"""Connections that hang: a relay between a picker and the API server that can stop to forward without closing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Relay:
    """Forwards connections to ``port`` on loopback, byte for byte."""

    def __init__(self, port: int) -> None:
        self.connections = 0
        """How many have been opened so far."""
        self._port, self._may_forward = port, asyncio.Event()
        self._may_forward.set()
        self._hung: asyncio.Event = asyncio.Event()

    def hang(self) -> None:
        """Forward nothing any more over the connections that are open, nor over new ones; none is closed."""
        self._hung.set()
        self._hung = asyncio.Event()
        self._may_forward.clear()

    def forward_new(self) -> None:
        """Forward what comes over connections from now on; those that hang do so for ever."""
        self._may_forward.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends or hangs, and then until its client has left."""
        self.connections += 1
        hung = self._hung
        there: asyncio.StreamWriter | None = None
        try:
            if self._may_forward.is_set():
                back, there = await asyncio.open_connection("127.0.0.1", self._port)
                pumps = [
                    asyncio.create_task(_pump(reader, there, hung)),
                    asyncio.create_task(_pump(back, writer, hung)),
                ]
                stopped = asyncio.create_task(hung.wait())
                await asyncio.wait((*pumps, stopped), return_when=asyncio.FIRST_COMPLETED)
                for task in (*pumps, stopped):
                    task.cancel()
                await asyncio.gather(*pumps, stopped, return_exceptions=True)
                if not hung.is_set():
                    return
            while await reader.read(65536):  # until the client gives the connection up
                pass
        except OSError:
            pass  # the client has left
        finally:
            for one in (writer, there):
                if one is not None:
                    one.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hung: asyncio.Event) -> None:
    while (data := await reader.read(65536)) and not hung.is_set():
        writer.write(data)
        await writer.drain()


@asynccontextmanager
async def relayed(port: int) -> AsyncIterator[tuple[Relay, int]]:
    """Run a relay to ``port``, and yield it with its own port."""
    relay = Relay(port)
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    try:
        yield relay, server.sockets[0].getsockname()[1]
    finally:
        server.close()
