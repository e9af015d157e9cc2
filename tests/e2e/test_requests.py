"""The requests that users send with their client, and the answers to wrong ones."""

from __future__ import annotations

import gzip
import json

import grpc
import openai
import pytest

from tests.e2e.site.background import PATIENCE_S
from tests.e2e.site.engine import MODELS, PIECES, Engine
from tests.e2e.site.router import LOOPBACK, Router, refuse_three_and_answer_one

pytestmark = pytest.mark.e2e


def test_a_completion(routed: Router, engines: list[Engine]) -> None:
    answer = routed.client.completions.create(model="m", prompt="hello")
    assert answer.choices[0].text in {engine.address for engine in engines}
    assert answer.usage is not None


def test_a_streamed_completion(routed: Router) -> None:
    pieces = list(routed.client.completions.create(model="m", prompt="hello", stream=True))
    assert len(pieces) == PIECES
    assert len({piece.choices[0].text for piece in pieces}) == 1


def test_a_chat(routed: Router, engines: list[Engine]) -> None:
    answer = routed.client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}])
    assert answer.choices[0].message.content in {engine.address for engine in engines}


def test_a_streamed_chat(routed: Router) -> None:
    pieces = list(
        routed.client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}], stream=True)
    )
    assert [piece.choices[0].finish_reason for piece in pieces] == [*[None] * (PIECES - 1), "stop"]


def test_a_request_without_a_body(routed: Router) -> None:
    assert [model.id for model in routed.client.models.list()] == list(MODELS)


def test_the_body_arrives_as_it_was_sent(routed: Router, engines: list[Engine]) -> None:
    text = '{ "prompt":"caf\\u00e9 \U0001f600",\n "model" : "m",  "zzz": [1.50, 1e3] }'
    assert routed.ask("/completions", text.encode())[0] == 200
    (body,) = [body for engine in engines for body in engine.bodies]
    assert body == json.loads(text)


def test_a_prompt_of_four_megabytes(routed: Router) -> None:
    assert routed.complete("word " * 800_000)


@pytest.mark.parametrize(
    ("path", "content", "said"),
    [
        ("/completions", b"{", "the request body is not valid JSON"),
        ("/completions", b'{"prompt": "x"}', "model not found in request body"),
        ("/completions", b'{"model": "m", "prompt": {}}', "invalid request body"),
        ("/chat/completions", b'{"model": "m"}', "`messages` must hold at least one message"),
        ("/completions", b"[]", "invalid request body"),
        ("/messages", b'{"model": "m"}', "`messages` must hold at least one message"),
    ],
)
def test_a_request_that_cannot_be_understood_gets_400(routed: Router, path: str, content: bytes, said: str) -> None:
    status, text = routed.ask(path, content)
    assert status == 400
    answer = json.loads(text)
    assert answer["error"]["message"].startswith(said)
    if path == "/messages":
        assert (answer["type"], answer["error"]["type"]) == ("error", "invalid_request_error")
        assert answer["request_id"]
    else:
        assert (answer["error"]["type"], answer["error"]["code"]) == ("BadRequestError", 400)


def test_a_body_in_gzip_is_refused_for_being_in_gzip(routed: Router) -> None:
    packed = gzip.compress(b'{"model": "m", "prompt": "x"}')
    status, text = routed.ask("/completions", packed, {"content-encoding": "gzip"})
    assert status == 400
    assert json.loads(text)["error"]["message"].startswith("request bodies with content-encoding 'gzip' are not read")


def test_a_grpc_request_that_cannot_be_understood_gets_a_grpc_status(routed: Router) -> None:
    with grpc.insecure_channel(f"{LOOPBACK}:{routed.port}") as channel:
        call = channel.unary_unary("/v1/service/completions")
        with pytest.raises(grpc.RpcError) as refused:
            call(b"hello", timeout=PATIENCE_S)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.details().startswith("the request body is not valid JSON")


def test_a_grpc_request_for_a_path_that_is_not_open_gets_a_grpc_status(routed: Router) -> None:
    with grpc.insecure_channel(f"{LOOPBACK}:{routed.port}") as channel:
        call = channel.unary_unary("/vllm.grpc.engine.VllmEngine/SubscribeKvEvents")
        with pytest.raises(grpc.RpcError) as refused:
            call(b"hello", timeout=PATIENCE_S)
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "--open-path" in refused.value.details()


def test_the_openai_client_shows_why(routed: Router) -> None:
    with pytest.raises(openai.BadRequestError, match="model not found in request body") as refused:
        routed.client.completions.create(model="", prompt="x")
    assert (refused.value.code, refused.value.type, refused.value.param) == ("400", "BadRequestError", None)
    with pytest.raises(openai.BadRequestError, match="`messages` must hold at least one message"):
        routed.client.chat.completions.create(model="m", messages=[])


def test_refused_requests_leave_a_connection_as_it_was(routed: Router) -> None:
    refuse_three_and_answer_one(routed.port)


def test_what_an_engine_answers_to_a_wrong_path_is_passed_on(routed: Router) -> None:
    assert routed.ask("/nothing")[0] == 404
