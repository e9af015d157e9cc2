"""The requests that users send, with the client that they use, and what they see when something is wrong."""

from __future__ import annotations

import json

import grpc
import openai
import pytest

from tests.e2e.background import PATIENCE_S
from tests.e2e.engine import PIECES, Engine
from tests.e2e.router import LOOPBACK, Router

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
    assert [model.id for model in routed.client.models.list()] == ["m"]


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
        ("/completions", b"{", "BadRequest"),
        ("/completions", b'{"prompt": "x"}', "model"),
        ("/completions", b'{"model": "m", "prompt": {}}', "BadRequest"),
        ("/chat/completions", b'{"model": "m"}', "messages"),
        ("/completions", b"[]", "BadRequest"),
    ],
)
def test_a_request_that_cannot_be_understood_gets_400(routed: Router, path: str, content: bytes, said: str) -> None:
    status, text = routed.ask(path, content)
    assert status == 400
    assert said in text
    assert text.startswith("inference error: BadRequest - ")


def test_a_grpc_request_that_cannot_be_understood_gets_a_grpc_status(routed: Router) -> None:
    with grpc.insecure_channel(f"{LOOPBACK}:{routed.port}") as channel:
        call = channel.unary_unary("/some.Service/completions")
        with pytest.raises(grpc.RpcError) as refused:
            call(b"hello", timeout=PATIENCE_S)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.details().startswith("inference error: BadRequest - the request body is not valid JSON")


def test_the_openai_client_raises_what_it_raises_for_400(routed: Router) -> None:
    with pytest.raises(openai.BadRequestError):
        routed.client.completions.create(model="", prompt="x")


def test_what_an_engine_answers_to_a_wrong_path_is_passed_on(routed: Router) -> None:
    assert routed.ask("/nothing")[0] == 404
