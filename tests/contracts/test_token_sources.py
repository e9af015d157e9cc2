"""The promises that every source of token ids keeps, wherever the tokenizer runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from epp.tokens.local import LocalSource
from epp.tokens.model.answer import Answer, NoTokenIds
from epp.tokens.model.model import ModelTokenizer
from epp.tokens.model.packing import packed
from epp.tokens.plan import RemotePlan
from epp.tokens.remote import RemoteSource
from epp.tokens.source import TokenRequest, TokenSource
from tests.epp.tokens.rendering import Renderer
from tests.epp.tokens.trained import KINDS

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
SOURCES = ["at once", "in a thread", "rendered", "tokenized"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return KINDS["chatml"](tmp_path_factory.mktemp("model"))


@asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[TokenSource]:
    model = ModelTokenizer(folder, 1 << 20)
    if kind in ("rendered", "tokenized"):
        async with Renderer(model) as server:
            source: TokenSource = RemoteSource(RemotePlan(url=server.url, renders=kind == "rendered"), tuple)
            yield source
            await source.close()
        return
    at_once = 1 << 30 if kind == "at once" else 0
    source = LocalSource({"m": model}, at_once_bytes=at_once, at_once_characters=at_once)
    yield source
    await source.close()


def asked(body: dict[str, Any], path: str = CHAT, prompts: int = 1) -> TokenRequest:
    return TokenRequest(path, json.dumps({"model": "m", **body}).encode(), "m", prompts)


async def answer(source: TokenSource, request: TokenRequest) -> Answer:
    found = source.now(request)
    if found is not None:
        return found
    future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    source.later(request, future.set_result)
    assert not future.done(), "not inside the call"
    return await asyncio.wait_for(future, 20)


def run(kind: str, folder: Path, scene: Callable[[TokenSource], Awaitable[None]]) -> None:
    async def main() -> None:
        async with opened(kind, folder) as source:
            await scene(source)

    asyncio.run(main())


@pytest.mark.parametrize("kind", SOURCES)
def test_a_chat_is_what_its_template_makes_of_it(kind: str, folder: Path) -> None:
    written = "<|im_start|>user\nhello there<|im_end|>\n<|im_start|>assistant\n"
    whole = Tokenizer.from_file(str(folder / "tokenizer.json"))

    async def scene(source: TokenSource) -> None:
        found = await answer(source, asked({"messages": [{"role": "user", "content": "hello there"}]}))
        assert found == (packed(whole.encode(written, add_special_tokens=False).ids),)

    run(kind, folder, scene)


@pytest.mark.parametrize("kind", SOURCES)
def test_the_prompts_of_a_completion_are_in_order_and_no_more_than_were_requested(kind: str, folder: Path) -> None:
    whole = Tokenizer.from_file(str(folder / "tokenizer.json"))

    async def scene(source: TokenSource) -> None:
        texts = ["the cache", "", "a router that knows", "unasked"]
        found = await answer(source, asked({"prompt": texts}, COMPLETION, prompts=3))
        assert found == tuple(packed(whole.encode(text).ids) for text in texts[:3])

    run(kind, folder, scene)


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize(("body", "path", "why"), [
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, CHAT,
     {NoTokenIds.MEDIA}),
    ({"messages": []}, CHAT, {NoTokenIds.REFUSED}),
    ({"messages": "x"}, CHAT, {NoTokenIds.REFUSED}),
    ({"messages": [{"role": "user", "content": "x"}], "continue_final_message": True}, CHAT, {NoTokenIds.REFUSED}),
    ({"prompt": "x", "suffix": "y"}, COMPLETION, {NoTokenIds.UNSUPPORTED, NoTokenIds.REFUSED}),
    ({"prompt": "x"}, "/v1/embeddings", {NoTokenIds.UNSUPPORTED}),
    ({"prompt": 7}, COMPLETION, {NoTokenIds.REFUSED}),
])  # fmt: skip
def test_a_failure_has_a_reason(kind: str, body: dict[str, Any], path: str, why: set[NoTokenIds], folder: Path) -> None:
    async def scene(source: TokenSource) -> None:
        assert await answer(source, asked(body, path)) in why

    run(kind, folder, scene)


@pytest.mark.parametrize("kind", SOURCES)
def test_no_bytes_make_it_raise(kind: str, folder: Path) -> None:
    bodies = st.binary(max_size=60) | st.sampled_from(
        [b"", b"{}", b"[]", b'{"prompt": "\\ud800"}', b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
         b'{"messages":' + b"[" * 3000 + b"]" * 3000 + b"}", b'{"prompt": "\xff"}'],
    )  # fmt: skip
    cases: list[tuple[bytes, str]] = []

    @given(bodies, st.sampled_from([CHAT, COMPLETION, "/v1/responses", "", "/v1/messages"]))
    def collect(body: bytes, path: str) -> None:
        cases.append((body, path))

    collect()

    async def scene(source: TokenSource) -> None:
        for body, path in cases:
            found = await answer(source, TokenRequest(path, body, "m", 1))
            assert isinstance(found, NoTokenIds) or len(found) == 1

    run(kind, folder, scene)


@pytest.mark.parametrize("kind", SOURCES[1:])
def test_a_cancelled_job_never_calls_back(kind: str, folder: Path) -> None:
    async def scene(source: TokenSource) -> None:
        results: list[Answer] = []
        request = asked({"prompt": "x"}, COMPLETION)
        assert source.now(request) is None
        job = source.later(request, results.append)
        job.cancel()
        job.cancel()
        assert isinstance(await answer(source, asked({"prompt": "y"}, COMPLETION)), tuple)
        assert results == []

    run(kind, folder, scene)


@pytest.mark.parametrize("kind", SOURCES[1:])
def test_waiting_jobs_fail_when_the_source_is_closed(kind: str, folder: Path) -> None:
    async def scene(source: TokenSource) -> None:
        results: list[Answer] = []
        requests = [asked({"prompt": f"{n}"}, COMPLETION) for n in range(20)]
        for request in requests:
            assert source.now(request) is None
            source.later(request, results.append)
        await source.close()
        assert results == [NoTokenIds.CLOSED] * 20

    run(kind, folder, scene)


@pytest.mark.parametrize("kind", SOURCES)
def test_a_body_that_is_too_long_is_not_read(kind: str, folder: Path) -> None:
    async def scene(source: TokenSource) -> None:
        assert await answer(source, TokenRequest(COMPLETION, b'"' + b"x" * (17 << 20), "m", 1)) is NoTokenIds.TOO_LONG

    run(kind, folder, scene)


def chats() -> st.SearchStrategy[list[dict[str, Any]]]:
    texts = st.text(max_size=20) | st.sampled_from(["<|im_start|>", "foo bar", "it's", "naïve 漢字", "\n\n "])
    content = texts | st.none() | st.lists(texts | texts.map(lambda text: {"type": "text", "text": text}), max_size=3)
    message = st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": content}
    )
    return st.lists(message, min_size=1, max_size=4)


def test_all_sources_return_the_same(folder: Path) -> None:
    cases: list[list[dict[str, Any]]] = []
    given(chats())(lambda messages: cases.append(messages))()

    async def main() -> None:
        found: dict[str, list[Answer]] = {}
        for kind in SOURCES:
            async with opened(kind, folder) as source:
                found[kind] = [await answer(source, asked({"messages": messages})) for messages in cases]
        for kind in SOURCES[1:]:
            assert found[kind] == found[SOURCES[0]], kind

    asyncio.run(main())
