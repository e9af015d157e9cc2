"""The load generator against simulated endpoints and against servers that misbehave."""

import asyncio
from collections.abc import Awaitable, Callable

import aiohttp
from aiohttp import web

from epp.lab.demo.counters import Watch
from epp.lab.demo.load import Sample, run
from epp.lab.demo.workload import Prompt, Workload
from epp.lab.engine.cli import bind, endpoints
from epp.lab.engine.preset import DEMO

SMALL = Workload(groups=2, prompts_per_group=3, system_tokens=200, output_tokens=4, concurrency=2)
FAST = 50.0


async def answered_by(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> Sample:
    """Return one sample of a server with ``handler``."""
    app = web.Application()
    app.router.add_post("/v1/chat/completions", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    (sock,) = bind("127.0.0.1", 0, 1)
    try:
        await web.SockSite(runner, sock).start()
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        async with asyncio.timeout(20):
            (sample,) = await run(url, "m", [Prompt(0, "system", "question", 4)], 1, lambda _: None)
        return sample
    finally:
        await runner.cleanup()


def test_every_request_is_measured_and_its_hits_are_counted_by_the_endpoint() -> None:
    async def scenario() -> None:
        (sock,) = bind("127.0.0.1", 0, 1)
        address = f"127.0.0.1:{sock.getsockname()[1]}"
        ended: list[Sample] = []
        async with (
            asyncio.timeout(20),
            endpoints(DEMO, [sock], speed=FAST),
            aiohttp.ClientSession() as session,
        ):
            watch = Watch(session, [address])
            await watch.read()
            samples = await run(f"http://{address}", DEMO.model, SMALL.prompts("run"), 1, ended.append)
            await watch.read()
        assert len(samples) == len(ended) == 6
        assert not [sample.error for sample in samples if sample.error]
        assert all(sample.ttft_s is not None and 0 < sample.ttft_s <= sample.e2e_s for sample in samples)
        assert all(sample.output_tokens == 4 for sample in samples)
        assert watch.total.requests == 6
        assert watch.total.gpu_share > 0.5  # four of the six find their system prompt

    asyncio.run(scenario())


def test_no_more_requests_are_under_way_than_asked_for() -> None:
    async def scenario() -> None:
        under_way = most = 0

        async def handler(_request: web.Request) -> web.StreamResponse:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0)
            under_way -= 1
            return web.Response(text="data: [DONE]\n\n", content_type="text/event-stream")

        app = web.Application()
        app.router.add_post("/v1/chat/completions", handler)
        runner = web.AppRunner(app)
        await runner.setup()
        (sock,) = bind("127.0.0.1", 0, 1)
        await web.SockSite(runner, sock).start()
        async with asyncio.timeout(20):
            await run(f"http://127.0.0.1:{sock.getsockname()[1]}", "m", SMALL.prompts("run"), 2, lambda _: None)
        await runner.cleanup()
        assert 1 <= most <= 2

    asyncio.run(scenario())


def test_a_refused_request_is_an_error_with_its_status() -> None:
    async def handler(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=503, text="no endpoints")

    sample = asyncio.run(answered_by(handler))
    assert sample.error == "HTTP 503: no endpoints"
    assert sample.ttft_s is None


def test_a_stream_that_breaks_off_is_an_error() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n')
        assert request.transport is not None
        request.transport.abort()
        return response

    sample = asyncio.run(answered_by(handler))
    assert sample.ttft_s is not None
    assert sample.error


def test_a_stream_without_its_end_is_an_error() -> None:
    async def handler(_request: web.Request) -> web.StreamResponse:
        return web.Response(text='data: {"choices":[{"delta":{"content":"hi"}}]}\n\n')

    assert asyncio.run(answered_by(handler)).error == "the stream ended early"


def test_a_role_is_not_a_first_token() -> None:
    async def handler(_request: web.Request) -> web.StreamResponse:
        return web.Response(text='data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\ndata: [DONE]\n\n')

    sample = asyncio.run(answered_by(handler))
    assert sample.error == ""
    assert sample.ttft_s is None


def test_what_is_not_json_is_an_error() -> None:
    async def handler(_request: web.Request) -> web.StreamResponse:
        return web.Response(text="data: nonsense\n\n")

    assert asyncio.run(answered_by(handler)).error.startswith("DecodeError")


def test_an_unreachable_server_is_an_error_of_every_request() -> None:
    async def scenario() -> list[Sample]:
        (sock,) = bind("127.0.0.1", 0, 1)
        port = sock.getsockname()[1]
        sock.close()
        return await run(f"http://127.0.0.1:{port}", "m", SMALL.prompts("run"), 2, lambda _: None)

    samples = asyncio.run(scenario())
    assert len(samples) == 6
    assert all(sample.error.startswith("ClientConnectorError") for sample in samples)
