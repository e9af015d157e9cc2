"""A whole picker with a tokenizer, on both transports: requests that wait for a thread, and others that do not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest

from epp.config.load import load_text
from epp.config.wiring.build import build
from epp.explain.options import DebugOptions
from epp.server.app import App
from epp.server.settings import Settings, Transport
from epp.tokens.counts import GONE, SENT, TOKENIZED
from epp.tokens.model.answer import NoTokenIds
from tests.epp.doubles import kinds, request_body, request_headers
from tests.epp.tokens.doubles import SlowSource

PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
CONFIG = (
    "{{apiVersion: llm-d.ai/v1alpha1, kind: EndpointPickerConfig, plugins: [{{type: token-producer, parameters: {}}}]}}"
)


def chat(characters: int) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": "word " * (characters // 5)}]}).encode()


class Stream:
    """Send one request to the picker."""

    def __init__(self, channel: grpc.aio.Channel, body: bytes, path: str = "/v1/chat/completions") -> None:
        self._call = channel.stream_stream(PROCESS)()
        self._body = body
        self._path = path

    async def begin(self) -> None:
        await self._call.write(request_headers(**{":path": self._path}).SerializeToString())
        await self._call.write(request_body(self._body).SerializeToString())

    async def answers(self) -> list[str | None]:
        first = await self._call.read()
        return kinds([first, await self._call.read()])

    def leave(self) -> None:
        self._call.cancel()


@pytest.mark.parametrize("transport", [Transport.WIRE, Transport.GRPCIO])
def test_requests_get_their_tokens_in_time_and_goes_on(transport: Transport, trained: Callable[[str], Path]) -> None:
    local = f"{{local: {{models: [{{path: {trained('chatml')}}}]}}}}"

    async def scenario() -> None:
        app = App(build(load_text(CONFIG.format(local))), Settings(endpoints=("127.0.0.1:9",), transport=transport))
        await app.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{app.grpc_port}") as channel:
                streams = [Stream(channel, chat(size)) for size in (10, 200_000, 40_000)]
                for stream in streams:
                    await stream.begin()
                for stream in streams:
                    assert await stream.answers() == ["request_headers", "request_body"]
            assert app.core.tokens.counts.results == {TOKENIZED: 3}
        finally:
            await app.stop(0.0)

    asyncio.run(scenario())


@pytest.mark.parametrize("transport", [Transport.WIRE, Transport.GRPCIO])
def test_a_waiting_request_delays_no_other_and_is_dropped_when_its_client_leaves(transport: Transport) -> None:
    async def scenario() -> None:
        app = App(
            build(load_text(CONFIG.format("{vllm: {}}"))), Settings(endpoints=("127.0.0.1:9",), transport=transport)
        )
        await app.start()
        source = app.core.tokens.source = SlowSource()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{app.grpc_port}") as channel:
                slow, gone = Stream(channel, chat(10)), Stream(channel, chat(10))
                for stream in (slow, gone):
                    await stream.begin()
                other = Stream(channel, b'{"model": "m", "prompt": [1, 2]}', "/v1/completions")
                await other.begin()
                assert await other.answers() == ["request_headers", "request_body"]
                assert len(source.jobs) == 2
                gone.leave()
                while len(source.jobs) > 1:  # noqa: ASYNC110 - over a real socket, nobody has an event for it
                    await asyncio.sleep(0.001)
                source.finish(NoTokenIds.FAILED)
                assert await slow.answers() == ["request_headers", "request_body"]
            assert app.core.tokens.counts.results == {SENT: 1, GONE: 1, NoTokenIds.FAILED: 1}
        finally:
            await app.stop(0.0)

    asyncio.run(scenario())


def test_explain_says_whether_tokens_are_known_and_counts_nothing(trained: Callable[[str], Path]) -> None:
    local = f"{{local: {{models: [{{path: {trained('chatml')}, name: m}}]}}}}"

    async def asked(session: aiohttp.ClientSession, url: str, body: bytes) -> dict[str, Any]:
        async with session.post(url, data=body) as response:
            said: dict[str, Any] = await response.json()
            return said["request"]  # type: ignore[no-any-return]

    async def scenario() -> None:
        settings = Settings(endpoints=("127.0.0.1:9",), debug=DebugOptions(port=0))
        app = App(build(load_text(CONFIG.format(local))), settings)
        await app.start()
        try:
            async with aiohttp.ClientSession() as session:
                url = f"http://127.0.0.1:{app.debug_port}/debug/explain?path=/v1/chat/completions"
                said = [await asked(session, url, chat(size)) for size in (100, 100_000)]
                assert [each["token_ids"] for each in said] == ["tokenized", "tokenized"]
                assert said[0]["prompt_tokens"] > 20
                other = await asked(session, url, chat(100).replace(b'"m"', b'"x"'))
                assert other["token_ids"] == "no_model"
            assert not app.core.tokens.counts.results
        finally:
            await app.stop(0.0)

    asyncio.run(scenario())
