"""A simulated endpoint over HTTP, on a free port. Engine time runs fast; nothing waits for the wall clock."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import aiohttp
import openai

from epp.lab.engine.cli import bind, endpoints
from epp.lab.engine.engine import Engine
from epp.lab.engine.preset import Preset
from epp.lab.engine.served import ServedModels
from tests.epp.lab.engine.bench import tiny

PRESET = tiny(gpu_blocks=1024, cpu_blocks=1024, max_model_len=2048, max_batched_tokens=4096, load_bytes_per_s=1e6)
TEN_BLOCKS = "0123456789abcdef" * 10  # 4 bytes are a token, 4 tokens a block


class Served(NamedTuple):
    """An endpoint that is up, and a plain client for it."""

    url: str
    engine: Engine
    http: aiohttp.ClientSession

    async def post(self, path: str, body: Any) -> tuple[int, Any]:
        send = {"data": body} if isinstance(body, bytes) else {"json": body}
        async with self.http.post(path, **send) as response:
            return response.status, await response.json()

    async def complete(self, **fields: Any) -> Any:
        status, body = await self.post("/v1/completions", {"model": "m", "max_tokens": 2, **fields})
        assert status == 200, body
        return body

    @property
    def client(self) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0)


@contextlib.asynccontextmanager
async def served(preset: Preset, speed: float, models: ServedModels | None = None) -> AsyncIterator[Served]:
    (sock,) = bind("127.0.0.1", 0, 1)
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    async with endpoints(preset, [sock], speed=speed, models=models) as (endpoint,), aiohttp.ClientSession(url) as http:
        yield Served(url, endpoint.live.engine, http)


def play(
    scenario: Callable[[Served], Awaitable[None]],
    preset: Preset = PRESET,
    speed: float = 1000.0,
    models: ServedModels | None = None,
) -> None:
    async def with_timeout() -> None:
        async with asyncio.timeout(30), served(preset, speed, models) as server:
            await scenario(server)

    asyncio.run(with_timeout())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the engine is the server's; it offers no event
        await asyncio.sleep(0)
