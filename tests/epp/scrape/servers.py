"""A server that responds byte by byte as a test scripts it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class Server:
    """The received requests. A script gets the writer and the number of the request, from 1; False closes the
    connection.
    """

    url: str = ""
    heads: list[str] = field(default_factory=list)
    connections: int = 0
    open_connections: int = 0
    closed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def address(self) -> str:
        return self.url.removeprefix("http://").removesuffix("/metrics?a=b%20c")

    async def until_all_are_closed(self) -> None:
        async with self.closed:
            await self.closed.wait_for(lambda: self.connections > 0 and self.open_connections == 0)


Script = Callable[[asyncio.StreamWriter, int], Awaitable[bool]]


def sending(*parts: bytes, stay: bool = True) -> Script:
    async def script(writer: asyncio.StreamWriter, _: int) -> bool:
        for part in parts:
            writer.write(part)
            await writer.drain()
        return stay

    return script


def repeating(head: bytes, part: bytes) -> Script:
    async def script(writer: asyncio.StreamWriter, _: int) -> bool:
        writer.write(head)
        while True:
            writer.write(part)
            await writer.drain()

    return script


@asynccontextmanager
async def server(script: Script, host: str = "127.0.0.1") -> AsyncIterator[Server]:
    made = Server()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made.connections += 1
        made.open_connections += 1
        try:
            while True:
                made.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
                if not await script(writer, len(made.heads)):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            made.open_connections -= 1
            writer.close()
            async with made.closed:
                made.closed.notify_all()

    listening = await asyncio.start_server(answer, host, 0)
    port = listening.sockets[0].getsockname()[1]
    made.url = f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics?a=b%20c"
    try:
        yield made
        await made.until_all_are_closed()
    finally:
        listening.close()
