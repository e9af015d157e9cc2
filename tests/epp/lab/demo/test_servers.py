"""The demo reads what simulated endpoints report about themselves."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import aiohttp
import pytest

from epp.lab.demo.servers import Servers, look, read_cache_tokens
from epp.lab.demo.stack import DemoError
from epp.lab.engine.cli import bind, endpoints
from epp.lab.engine.preset import DEMO, Preset


async def servers_of(*presets: Preset) -> Servers:
    """Return what servers of these presets report."""
    addresses = []
    async with asyncio.timeout(20), AsyncExitStack() as stack:
        for preset in presets:
            (sock,) = bind("127.0.0.1", 0, 1)
            addresses.append(f"127.0.0.1:{sock.getsockname()[1]}")
            await stack.enter_async_context(endpoints(preset, [sock]))
        return await look(await stack.enter_async_context(aiohttp.ClientSession()), addresses)


def test_endpoints_of_one_model_are_summed() -> None:
    servers = asyncio.run(servers_of(DEMO, DEMO))
    assert servers == Servers(DEMO.model, DEMO.max_model_len, 2 * DEMO.gpu_blocks * DEMO.block_tokens)


def test_endpoints_of_different_models_are_refused_by_name() -> None:
    with pytest.raises(DemoError, match=r"serves other, .* serves Qwen/Qwen3-32B; give endpoints of one model"):
        asyncio.run(servers_of(DEMO, replace(DEMO, model="other")))


def test_an_endpoint_that_is_not_there_is_named() -> None:
    async def scenario() -> None:
        (sock,) = bind("127.0.0.1", 0, 1)
        address = f"127.0.0.1:{sock.getsockname()[1]}"
        sock.close()
        async with aiohttp.ClientSession() as session:
            await look(session, [address])

    with pytest.raises(DemoError, match=r"http://127.0.0.1:\d+/v1/models does not name a model \(Cannot connect to"):
        asyncio.run(scenario())


def test_a_cache_of_unknown_size_counts_as_nothing() -> None:
    assert read_cache_tokens("") == 0
    assert read_cache_tokens('vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1.0\n') == 0
