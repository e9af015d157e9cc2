"""Across all parsers: two requests have the same prompt just where an engine would see the same one."""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.parsers import PARSERS, ByPath
from epp.parsers.grpc_body import frame
from epp.parsers.identity import TOKENS, as_tokens, identity, kind_of
from epp.pb.vllm_engine_pb2 import GenerateRequest
from scorers.base import Prompt

READ = ByPath([parser() for parser in PARSERS])
Request = tuple[Hashable, str, bytes]
"""What it means, where it goes, its body."""


def prompts(path: str, body: bytes) -> tuple[Prompt, ...]:
    return READ.parse(path, body).prompts


models = st.sampled_from(["a", "ab", "b"])
salts = st.sampled_from([None, "", "a", "b", "ba"])
texts = st.text(st.sampled_from("abc\xfe\xff\0\u0101"), min_size=1, max_size=4)
ids = st.lists(st.integers(0, 2**32 - 1) | st.sampled_from([0x61626364, 0x61]), min_size=1, max_size=2)
turns = st.lists(st.tuples(st.sampled_from(["user", "assistant"]), texts), min_size=1, max_size=3)
keys = st.sampled_from([None, "a", "b"])


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """A request of any API, with a prompt that others may have by chance."""
    model, salt = draw(models), draw(salts)
    common: dict[str, Any] = {"model": model, "cache_salt": salt}
    who: tuple[str, ...] = (model, salt or "")
    kind = draw(st.sampled_from(["text", "tokens", "image", "chat", "sglang", "grpc"]))
    if kind == "text":
        text, (path, field) = draw(texts), draw(st.sampled_from([("/completions", "prompt"), ("/embeddings", "input")]))
        return ("text", who, text), path, json.dumps(common | {field: text}).encode()
    if kind == "tokens":
        given_ids = draw(ids)
        path, field = draw(st.sampled_from([("/completions", "prompt"), ("/inference/v1/generate", "token_ids")]))
        return ("tokens", who, tuple(given_ids)), path, json.dumps(common | {field: given_ids}).encode()
    if kind == "image":
        text = draw(texts)
        return ("image", who, text), "/images/generations", json.dumps(common | {"prompt": text}).encode()
    if kind == "chat":
        said = draw(turns)
        path, field = draw(
            st.sampled_from([("/chat/completions", "messages"), ("/responses", "input"), ("/messages", "messages")])
        )
        listed = [{"role": role, "content": text} for role, text in said]
        return ("chat", who, tuple(said)), path, json.dumps(common | {field: listed}).encode()
    if kind == "sglang":
        text, key = draw(texts), draw(keys)
        body = {"text": text, "cache_salt": salt, "extra_key": key}
        return (
            ("text", ("", salt or "", key) if key else ("", salt or ""), text),
            "/generate",
            json.dumps(body).encode(),
        )
    text = draw(texts)
    message = GenerateRequest(text=text).SerializeToString()
    return ("text", ("", ""), text), "/vllm.grpc.engine.VllmEngine/Generate", frame(message)


@given(requests(), requests())
def test_two_requests_share_a_prompt_just_where_they_mean_the_same(one: Request, other: Request) -> None:
    assert (prompts(*one[1:]) == prompts(*other[1:])) == (one[0] == other[0])


BODIES: dict[str, dict[str, Any]] = {
    "/completions": {"model": "m", "prompt": "x"},
    "/chat/completions": {"model": "m", "messages": [{"role": "user", "content": "x"}]},
    "/embeddings": {"model": "m", "input": "x"},
    "/responses": {"model": "m", "input": "x"},
    "/images/generations": {"model": "m", "prompt": "x"},
    "/messages": {"model": "m", "messages": [{"role": "user", "content": "x"}]},
    "/inference/v1/generate": {"model": "m", "token_ids": [1]},
    "/generate": {"input_ids": [1]},
}


@pytest.mark.parametrize("path", BODIES)
def test_every_parser_keeps_tenants_with_different_salts_apart(path: str) -> None:
    """Whatever a tenant sends, without the other's salt it cannot name the other's prefix."""
    salted = ["a", "b", "ab", "a" * 300, "a" * 299 + "b"]
    told = {prompts(path, json.dumps(BODIES[path] | {"cache_salt": salt}).encode())[0].identity for salt in salted}
    told.add(prompts(path, json.dumps(BODIES[path]).encode())[0].identity)
    assert len(told) == len(salted) + 1


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("/generate", {"extra_key": "a"}),
        ("/generate", {"extra_key": ["a"]}),
        ("/generate", {"lora_path": "a"}),
        ("/generate", {"image_data": "a"}),
        ("/generate", {"audio_data": "a"}),
        ("/inference/v1/generate", {"features": {"mm_hashes": {"image": ["a"]}}}),
        ("/inference/v1/generate", {"features": {"mm_placeholders": {"image": [{"offset": 0, "length": 1}]}}}),
    ],
)
def test_what_else_changes_the_prompt_keeps_it_apart(path: str, more: dict[str, Any]) -> None:
    plain, with_more = (prompts(path, json.dumps(BODIES[path] | extra).encode()) for extra in ({}, more))
    other = json.dumps(BODIES[path] | more).replace('"a"', '"b"').replace("1}", "2}").encode()
    assert len({plain[0].identity, with_more[0].identity, prompts(path, other)[0].identity}) == 3


def test_a_batch_of_texts_or_ids_is_several_prompts() -> None:
    texts, tokens = {"text": ["a", "b"]}, {"input_ids": [[1], [2]]}
    assert [p.data for p in prompts("/generate", json.dumps(texts).encode())] == [b"a", b"b"]
    assert [p.data for p in prompts("/generate", json.dumps(tokens).encode())] == [b"\x01\0\0\0", b"\x02\0\0\0"]


@given(st.text(max_size=9), st.none() | st.text(max_size=300))
def test_a_prompt_that_is_tokenized_has_the_identity_of_one_that_was_sent_so(model: str, salt: str | None) -> None:
    written, sent = identity(b"chat", model, salt), identity(TOKENS, model, salt)
    assert as_tokens(written) == as_tokens(sent) == sent
    assert (kind_of(written), kind_of(sent)) == (b"chat", TOKENS)
    assert kind_of(identity(TOKENS + b"digest", model, salt)) != TOKENS, "with media among them"
