"""gRPC requests: framed, typed, and read as the prompts that they hold."""

from __future__ import annotations

import json
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.errors import BadRequest, UnsupportedEncoding
from epp.parsers import OpenAIParser, Parsed, VertexAIParser, VllmGrpcParser
from epp.parsers.base import UNREAD
from epp.parsers.grpc_body import frame, message_bytes, read
from epp.pb.vertex_prediction_pb2 import RawPredictRequest
from epp.pb.vllm_engine_pb2 import EmbedRequest, GenerateRequest

ENGINE = "/vllm.grpc.engine.VllmEngine/"
VERTEX = "/google.cloud.aiplatform.v1beta1.PredictionService/"
VLLM, VERTEX_AI = VllmGrpcParser(), VertexAIParser()


def generate(request: GenerateRequest) -> Parsed:
    return VLLM.parse(ENGINE + "Generate", frame(request.SerializeToString()))


# Frames.


@given(st.binary(max_size=50))
def test_a_frame_holds_what_was_put_into_it(message: bytes) -> None:
    assert message_bytes(frame(message)) == message


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "ends within a frame: 0 bytes, and its header has 5"),
        (frame(b"abc")[:4], "ends within a frame: 4 bytes"),
        (frame(b"abc")[:-1], "ends within a frame: 2 bytes of a message of 3"),
        (b"\0\xff\xff\xff\xff", "0 bytes of a message of 4,294,967,295"),
        (frame(b"abc") + frame(b""), "5 bytes follow the gRPC message of 3; a unary request has one"),
        (b'{"model":"m"}', "no gRPC request: its first byte is 123"),
    ],
)
def test_what_is_not_one_message_is_refused(body: bytes, text: str) -> None:
    with pytest.raises(BadRequest, match=text):
        message_bytes(body)


def test_a_compressed_message_is_refused_with_the_status_that_says_so() -> None:
    packed = zlib.compress(b"abc")
    with pytest.raises(UnsupportedEncoding, match="compressed") as refused:
        message_bytes(b"\x01" + len(packed).to_bytes(4, "big") + packed)
    assert (refused.value.http_status, refused.value.grpc_status) == (400, 12)


# vLLM.


def test_text_and_token_ids_are_the_prompts_that_the_http_api_reads() -> None:
    """But for the model, which a gRPC request does not name."""
    text = generate(GenerateRequest(text="héllo", stream=True))
    assert [prompt.data for prompt in text.prompts] == ["héllo".encode()]
    assert (text.model, text.target_model, text.streaming, text.body) == ("", "", True, None)
    ids = generate(GenerateRequest(tokenized={"input_ids": [1, 2**32 - 1]}))
    assert [prompt.data for prompt in ids.prompts] == [b"\x01\0\0\0\xff\xff\xff\xff"]
    assert (ids.prompt_tokens, ids.streaming) == (2, False)
    embed = EmbedRequest(tokenized={"input_ids": [1, 2**32 - 1]})
    assert VLLM.parse(ENGINE + "Embed", frame(embed.SerializeToString())).prompts == ids.prompts


def test_prompts_with_media_share_with_their_likes_only() -> None:
    def with_media(*hashes: str, offset: int = 0, more: bytes = b"") -> bytes:
        request = GenerateRequest(tokenized={"input_ids": [1]}, mm_inputs={"mm_hashes": hashes})
        request.mm_inputs.mm_placeholders.add(offset=offset, length=1)
        request.mm_inputs.MergeFromString(more)
        (prompt,) = generate(request).prompts
        return prompt.identity

    pixels = bytes([2 << 3 | 2, 3]) + b"abc"  # a field that is not in our subset
    kinds = [with_media(), with_media(more=pixels), with_media("a"), with_media("b"), with_media("a", offset=1)]
    (plain,) = generate(GenerateRequest(tokenized={"input_ids": [1]})).prompts
    assert len({*kinds, plain.identity}) == len(kinds) + 1
    assert with_media("a", more=pixels) == with_media("a"), "the hash names what it shows"


@pytest.mark.parametrize(
    ("method", "message", "text"),
    [
        ("Generate", b"", "one of `text` and `tokenized` must hold the prompt"),
        ("Generate", GenerateRequest(text="").SerializeToString(), "must hold the prompt"),
        ("Generate", GenerateRequest(tokenized={}).SerializeToString(), "at least one token id"),
        ("Generate", b"\xff\xff", "not a vllm.grpc.engine.GenerateRequest"),
        ("Generate", b"\x1a\x02\xff\xfe", "not a vllm.grpc.engine.GenerateRequest"),
        ("Embed", b"", "at least one token id"),
        ("Embed", b"\x0b" * 200_000, "not a vllm.grpc.engine.EmbedRequest"),
    ],
)
def test_a_message_without_a_prompt_is_refused(method: str, message: bytes, text: str) -> None:
    with pytest.raises(BadRequest, match=text):
        VLLM.parse(ENGINE + method, frame(message))


@pytest.mark.parametrize("method", ["Abort", "HealthCheck", "GetModelInfo"])
def test_methods_without_a_prompt_pass_unread(method: str) -> None:
    assert VLLM.parse(ENGINE + method, b"\xff") is UNREAD
    assert VERTEX_AI.parse(VERTEX + "CountTokens", b"\xff") is UNREAD


# Vertex AI.


def wrapped(body: object) -> bytes:
    request = RawPredictRequest(endpoint="e", http_body={"data": json.dumps(body).encode()})
    return frame(request.SerializeToString())


CHAT = {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True}


def test_a_wrapped_chat_is_the_chat() -> None:
    plain = OpenAIParser().parse("/chat/completions", json.dumps(CHAT).encode())
    assert VERTEX_AI.parse(VERTEX + "ChatCompletions", wrapped(CHAT)) == plain
    for method in ("RawPredict", "StreamRawPredict"):
        parsed = VERTEX_AI.parse(VERTEX + method, wrapped({"model": "m", "input": "x"}))
        assert parsed.prompts == plain.prompts


def test_a_rewritten_model_is_wrapped_as_it_was() -> None:
    body = VERTEX_AI.parse(VERTEX + "ChatCompletions", wrapped(CHAT), "n").body
    assert body is not None
    request = read(body, RawPredictRequest())
    assert request.endpoint == "e"
    assert json.loads(request.http_body.data) == CHAT | {"model": "n"}


def test_a_wrapped_request_may_leave_the_model_out() -> None:
    nameless = wrapped({"messages": CHAT["messages"]})
    parsed = VERTEX_AI.parse(VERTEX + "ChatCompletions", nameless, "n")
    assert (parsed.model, parsed.target_model, parsed.body, len(parsed.prompts)) == ("", "", None, 1)


@pytest.mark.parametrize("body", [frame(b""), frame(b"\xff"), wrapped([]), wrapped({"model": "m"}), b"{}"])
def test_what_holds_no_chat_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest):
        VERTEX_AI.parse(VERTEX + "ChatCompletions", body)


@given(st.binary(max_size=60), st.sampled_from([*VLLM.paths[:2], *VERTEX_AI.paths[:3]]), st.booleans())
def test_no_bytes_at_all_break_the_parsers(noise: bytes, path: str, framed: bool) -> None:
    parser = VLLM if path in VLLM.paths else VERTEX_AI
    with suppress(BadRequest):
        assert parser.parse(path, frame(noise) if framed else noise).prompts
