"""A remote tokenizer and its faults: the request goes on without tokens, and the reason is reported."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from epp.errors import ConfigError
from epp.tokens.circuit_breaker import FAILURES, LONGEST_S
from epp.tokens.model.answer import Answer, NoTokenIds
from epp.tokens.model.model import ModelTokenizer
from epp.tokens.plan import RemotePlan
from epp.tokens.remote import RemoteSource
from epp.tokens.source import TokenRequest
from scorers.base import Candidate, Slot
from tests.epp.tokens.rendering import Renderer

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"


def asked(path: str = COMPLETION, prompts: int = 1, model: str = "m", **body: Any) -> TokenRequest:
    return TokenRequest(path, json.dumps({"model": model, "prompt": "x", **body}).encode(), model, prompts)


async def told(source: RemoteSource, request: TokenRequest) -> Answer:
    at_once = source.now(request)
    if at_once is not None:
        return at_once
    future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    source.later(request, future.set_result)
    return await asyncio.wait_for(future, 20)


def scene(trained: Callable[[str], Path], run: Callable[[Renderer], Awaitable[None]]) -> None:
    async def main() -> None:
        async with Renderer(ModelTokenizer(trained("chatml"), 1 << 20)) as server:
            await run(server)

    asyncio.run(main())


def answers(body: bytes, status: int = 200) -> Callable[[web.Request], web.Response]:
    return lambda _: web.Response(body=body, status=status)


async def hangs(_: web.Request) -> web.Response:
    await asyncio.sleep(60)
    raise AssertionError


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(40):
        await response.write(b" " * (1 << 20))
    return response


@pytest.mark.parametrize(("instead", "why"), [
    (answers(b"{}"), NoTokenIds.FAILED),
    (answers(b"not json"), NoTokenIds.FAILED),
    (answers(b'[{"token_ids": [-1]}]'), NoTokenIds.FAILED),
    (answers(b'[{"token_ids": [4294967296]}]'), NoTokenIds.FAILED),
    (answers(b'[{"token_ids": ["1"]}]'), NoTokenIds.FAILED),
    (answers(b"[]"), NoTokenIds.FAILED),
    (answers(b"[" * 100_000), NoTokenIds.FAILED),
    (answers(b'[{"token_ids": [1], "features": {"mm_hashes": {"image": ["a"]}}}]'), NoTokenIds.MEDIA),
    (answers(b"", 400), NoTokenIds.REFUSED),
    (answers(b"", 422), NoTokenIds.REFUSED),
    (answers(b"", 404), NoTokenIds.FAILED),
    (answers(b"", 302), NoTokenIds.FAILED),
    (answers(b"boom", 500), NoTokenIds.FAILED),
    (hangs, NoTokenIds.TIMEOUT),
    (endless, NoTokenIds.TOO_LONG),
])  # fmt: skip
def test_an_invalid_response_is_reported(
    instead: Callable[[web.Request], Any], why: NoTokenIds, trained: Callable[[str], Path]
) -> None:
    async def run(server: Renderer) -> None:
        server.instead = instead
        source = RemoteSource(RemotePlan(url=server.url, timeout_s=0.3 if instead is hangs else 10.0), tuple)
        assert await told(source, asked()) is why
        server.instead = None
        assert isinstance(await told(source, asked()), tuple), "and the next one is told"
        await source.close()

    scene(trained, run)


def test_a_server_that_is_not_there_is_a_failure_that_the_log_names(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        source = RemoteSource(RemotePlan(url=f"http://127.0.0.1:{port}"), tuple)
        assert await told(source, asked()) is NoTokenIds.FAILED
        await source.close()
        assert f"http://127.0.0.1:{port}/v1/completions/render" in caplog.text

    asyncio.run(run())


def test_a_server_that_is_away_is_not_waited_for_by_every_request(trained: Callable[[str], Path]) -> None:
    async def run(server: Renderer) -> None:
        now_s = [0.0]
        source = RemoteSource(RemotePlan(url=server.url), tuple, lambda: now_s[0])
        server.instead = answers(b"", 503)
        for _ in range(20):
            assert await told(source, asked()) is NoTokenIds.FAILED
        assert len(server.asked) == FAILURES
        server.instead = None
        now_s[0] += LONGEST_S
        for _ in range(3):
            assert isinstance(await told(source, asked()), tuple)
        await source.close()

    scene(trained, run)


def test_a_server_that_lets_requests_wait_in_vain_is_away_too(trained: Callable[[str], Path]) -> None:
    async def run(server: Renderer) -> None:
        now_s = [0.0]
        source = RemoteSource(RemotePlan(url=server.url), tuple, lambda: now_s[0])
        server.instead = hangs
        jobs = [source.later(asked(), lambda _: None) for _ in range(FAILURES)]
        async with asyncio.timeout(20):
            while len(server.asked) < FAILURES:  # noqa: ASYNC110 - over a real socket
                await asyncio.sleep(0.001)
        now_s[0] += 5.0
        for job in jobs:
            job.cancel()
        await asyncio.gather(*[job.task for job in jobs if job.task is not None], return_exceptions=True)
        assert await told(source, asked()) is NoTokenIds.FAILED
        assert len(server.asked) == FAILURES
        await source.close()

    scene(trained, run)


@pytest.mark.parametrize("status", [400, 404, 500])
def test_what_may_be_one_clients_fault_costs_the_others_nothing(status: int, trained: Callable[[str], Path]) -> None:
    async def run(server: Renderer) -> None:
        source = RemoteSource(RemotePlan(url=server.url), tuple)
        server.instead = answers(b"", status)
        for _ in range(2 * FAILURES):
            await told(source, asked())
        server.instead = None
        assert isinstance(await told(source, asked()), tuple)
        await source.close()

    scene(trained, run)


@pytest.mark.parametrize("before", [0, 65_530, 200_000])
def test_media_are_seen_wherever_they_stand(before: int) -> None:
    async def run() -> None:
        source = RemoteSource(RemotePlan(url="http://127.0.0.1:1"), tuple)
        content = [{"type": "text", "text": "x" * before}, {"type": "image_url", "image_url": {"url": "y"}}]
        assert await told(source, asked(CHAT, messages=[{"role": "user", "content": content}])) is NoTokenIds.MEDIA
        await source.close()

    asyncio.run(run())


def test_a_large_answer_is_read_without_holding_up_others(trained: Callable[[str], Path]) -> None:
    async def run(server: Renderer) -> None:
        server.instead = answers(json.dumps([{"token_ids": list(range(100_000))}]).encode())
        source = RemoteSource(RemotePlan(url=server.url), tuple)
        (ids,) = await told(source, asked())  # type: ignore[misc]
        assert len(ids) == 400_000
        await source.close()

    scene(trained, run)


@pytest.mark.parametrize("renders", [True, False])
def test_the_server_is_asked_for_the_model_that_is_configured(renders: bool, trained: Callable[[str], Path]) -> None:
    async def run(server: Renderer) -> None:
        source = RemoteSource(RemotePlan(url=server.url, renders=renders, model_name="base"), tuple)
        await told(source, asked(model="adapter", temperature=0.5))
        ((path, body),) = server.asked
        assert body["model"] == "base"
        assert path == ("/v1/completions/render" if renders else "/tokenize")
        assert ("temperature" in body) is renders, "a request is rendered as it is"
        await source.close()

    scene(trained, run)


@pytest.mark.parametrize(("path", "asked_for"), [
    ("/prefix/v1/chat/completions", "/v1/chat/completions/render"),
    ("/v1/messages", "/v1/messages/render"),
    ("/v1/responses", "/v1/responses/render"),
])  # fmt: skip
def test_every_api_that_is_rendered_has_its_path(path: str, asked_for: str, trained: Callable[[str], Path]) -> None:
    async def run(server: Renderer) -> None:
        server.instead = answers(b'{"token_ids": [1, 2]}')
        source = RemoteSource(RemotePlan(url=server.url), tuple)
        assert await told(source, asked(path)) == (b"\x01\0\0\0\x02\0\0\0",)
        assert [path for path, _ in server.asked] == [asked_for]
        await source.close()

    scene(trained, run)


def test_the_pools_endpoints_are_asked_in_turn_those_that_answer_scrapes_first(trained: Callable[[str], Path]) -> None:
    async def run(server: Renderer) -> None:
        address = server.url.removeprefix("http://")
        candidates: list[Candidate] = []
        source = RemoteSource(RemotePlan(url=""), lambda: candidates)
        assert await told(source, asked()) is NoTokenIds.FAILED, "nobody is there"
        candidates.append(Candidate(Slot(0), "127.0.0.1:1", fresh=False))
        candidates.append(Candidate(Slot(1), address))
        for _ in range(3):
            assert isinstance(await told(source, asked()), tuple)
        await source.close()

    scene(trained, run)


@pytest.mark.parametrize("body", [
    {"documents": [{"text": "x"}]}, {"reasoning_effort": "low"}, {"suffix": "x"}, {"chat_template": "x"},
    {"messages": [{"role": "assistant", "content": "x", "reasoning_content": "y"}]},
])  # fmt: skip
def test_what_tokenize_does_not_know_is_not_asked_of_it(body: dict[str, Any], trained: Callable[[str], Path]) -> None:
    async def run(server: Renderer) -> None:
        source = RemoteSource(RemotePlan(url=server.url, renders=False), tuple)
        assert await told(source, asked(CHAT, **body)) is NoTokenIds.UNSUPPORTED
        assert server.asked == []
        await source.close()

    scene(trained, run)


def test_words_of_a_text_are_no_media(trained: Callable[[str], Path]) -> None:
    async def run(server: Renderer) -> None:
        source = RemoteSource(RemotePlan(url=server.url), tuple)
        assert isinstance(await told(source, asked(prompt='{"image_url": "x", "type": "image"}')), tuple)
        await source.close()

    scene(trained, run)


def test_certificates_that_cannot_be_read_are_an_error_at_start() -> None:
    with pytest.raises(ConfigError, match="certificates for tokenizing"):
        RemoteSource(RemotePlan(url="https://x", ca_cert_path="/nowhere"), tuple)
