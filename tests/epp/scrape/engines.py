"""Engines' metrics pages on real sockets."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from aiohttp import web

from scorers.base import Candidate, Slot


def page(running: int = 0, waiting: int = 0, gpu_blocks: int = 100) -> str:
    return (
        f'vllm:num_requests_running{{engine="0"}} {running}\nvllm:num_requests_waiting{{engine="0"}} {waiting}\n'
        f'vllm:kv_cache_usage_perc{{engine="0"}} 0.5\n'
        f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="{gpu_blocks}"}} 1\n'
    )


async def counting(reads: int) -> web.StreamResponse:
    """Return a page with as many blocks as there were reads, so the pool's listeners get each one."""
    return web.Response(text=page(running=reads, gpu_blocks=reads))


async def endless(_: int) -> web.StreamResponse:
    async def forever() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * (1 << 20)

    return web.Response(body=forever())


@contextmanager
def mute(address: str = "127.0.0.1:0") -> Iterator[str]:
    """Yield the address of a socket that accepts connections and never responds."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", int(address.rpartition(":")[2])))
        listening.listen()
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@dataclass
class Engine:
    """Serve one metrics page; ``answer`` gets the number of reads so far."""

    answer: Callable[[int], Awaitable[web.StreamResponse]] = counting
    address: str = ""
    reads: int = 0
    connections: set[object] = field(default_factory=set)
    been_read: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.reads += 1
        self.connections.add(request.transport)
        self.been_read.set()
        return await self.answer(self.reads)

    async def next_read(self) -> None:
        self.been_read.clear()
        await self.been_read.wait()


@asynccontextmanager
async def engine(
    answer: Callable[[int], Awaitable[web.StreamResponse]] = counting,
    address: str = "127.0.0.1:0",
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Engine]:
    made = Engine(answer)
    app = web.Application()
    app.router.add_get("/metrics", made.serve)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    host, _, port = address.rpartition(":")
    await web.TCPSite(runner, host, int(port), reuse_address=True, ssl_context=tls).start()
    made.address = f"{host}:{runner.addresses[0][1]}"
    try:
        yield made
    finally:
        await runner.cleanup()


class Reports:
    """A listener that lets a test wait for the pool's next change."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[Candidate] = asyncio.Queue()

    def endpoint_added(self, candidate: Candidate) -> None: ...

    def endpoint_removed(self, slot: Slot, address: str) -> None: ...

    def engine_reported(self, candidate: Candidate) -> None:
        self.heard.put_nowait(candidate)
