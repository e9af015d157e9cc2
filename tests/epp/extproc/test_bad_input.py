"""Invalid bodies, through the whole exchange: each is refused clearly, and no other request loses anything.

Every parser is tried: the picker has the default profile with all parsers named, and a request of another client is
in flight all the time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.config.defaults import default_config
from epp.config.wiring.build import build
from epp.extproc.exchange import Exchange
from epp.extproc.options import ExchangeSettings
from epp.parsers import PARSERS, ByPath
from epp.parsers.grpc_body import frame
from epp.pb.ext_proc_pb2 import ProcessingResponse
from epp.pb.vertex_prediction_pb2 import RawPredictRequest
from epp.pb.vllm_engine_pb2 import EmbedRequest, GenerateRequest
from epp.picking.director import Director
from epp.picking.request_steps import RequestSteps
from scorers.prefix.cache import PrefixCache
from tests.epp.doubles import (
    BUFFERED,
    FULL_DUPLEX,
    NONE,
    World,
    completion,
    destination_of,
    read,
    request_body,
    request_headers,
)

LIMIT = 11 << 20
DEEP = 100_000

TURN = {"role": "user", "content": "x"}
IDS = list(range(20))
CHAT, RESPONSES = {"model": "m", "messages": [TURN]}, {"model": "m", "input": "x"}

JSON: dict[str, dict[str, Any]] = {
    "/v1/completions": {"model": "m", "prompt": "x"},
    "/v1/completions/render": {"model": "m", "prompt": "x"},
    "/v1/chat/completions": CHAT,
    "/v1/chat/completions/render": CHAT,
    "/v1/embeddings": RESPONSES,
    "/v1/responses": RESPONSES,
    "/v1/conversations": {"items": [TURN]},
    "/v1/images/generations": {"model": "m", "prompt": "x"},
    "/v1/messages": {"model": "m", "max_tokens": 1, "messages": [TURN]},
    "/v1/messages/count_tokens": CHAT,
    "/inference/v1/generate": {"model": "m", "token_ids": IDS, "sampling_params": {}},
    "/generate": {"text": "x"},
}
NAMED = [path for path in JSON if "model" in JSON[path]]
"""Paths whose bodies contain a model."""
UNREAD = "/v1/messages/count_tokens"
"""A path whose bodies the engine alone checks; an invalid one passes the picker."""
JUDGED = [path for path in JSON if path != UNREAD]
"""Paths whose bodies the picker checks."""
PROMPTS = {
    "/v1/completions": "prompt", "/v1/embeddings": "input", "/inference/v1/generate": "token_ids",
    "/generate": "input_ids", "/v1/completions/render": "prompt",
}  # fmt: skip
"""Paths that take token ids, with the field that holds them."""
GRPC = {
    "/vllm.grpc.engine.VllmEngine/Generate": GenerateRequest(text="x").SerializeToString(),
    "/vllm.grpc.engine.VllmEngine/Embed": EmbedRequest(tokenized={"input_ids": IDS}).SerializeToString(),
    "/google.cloud.aiplatform.v1beta1.PredictionService/ChatCompletions": RawPredictRequest(
        http_body={"data": json.dumps(CHAT).encode()}
    ).SerializeToString(),
    "/google.cloud.aiplatform.v1beta1.PredictionService/RawPredict": RawPredictRequest(
        http_body={"data": json.dumps(RESPONSES).encode()}
    ).SerializeToString(),
}
VALID = {path: json.dumps(body).encode() for path, body in JSON.items()} | {p: frame(m) for p, m in GRPC.items()}


@dataclass
class Busy:
    """A picker with another client's request under way."""

    world: World
    cache: PrefixCache
    neighbour: Exchange

    def state(self) -> object:
        """Return everything that a request could change."""
        ledger = self.world.ledger
        loads = {c.address: (c.in_flight, c.in_flight_tokens) for c in self.world.pool.candidates()}
        return len(ledger), list(ledger.picks), list(ledger.closed), loads, self.cache.statistics()

    def send(self, path: str, body: bytes, modes: tuple[int, int] = (FULL_DUPLEX, FULL_DUPLEX)) -> Sent:
        """Return the answers to ``body``, which is sent whole or in pieces, depending on the mode."""
        exchange = Exchange(self.world.director, ExchangeSettings(max_request_bytes=LIMIT))
        kind = "application/grpc" if path in GRPC else "application/json"
        answers = exchange.received(request_headers(modes=modes, content_type=kind, **{":path": path}), 0)
        if modes[0] == BUFFERED:
            answers = exchange.received(request_body(body), 0)
        else:
            for at in range(0, len(body), 1 << 16):
                if not exchange.over:
                    last = at + (1 << 16) >= len(body)
                    answers += exchange.received(request_body(body[at : at + (1 << 16)], end_of_stream=last), 0)
        return Sent(exchange, read(answers))


@dataclass
class Sent:
    exchange: Exchange
    answers: list[ProcessingResponse]

    @property
    def refused(self) -> bool:
        return any(answer.HasField("immediate_response") for answer in self.answers)


def busy() -> Busy:
    plan = build(default_config())
    assert plan.prefix_cache is not None
    world = World(profile=plan.profile)
    world.pool.listeners.append(plan.prefix_cache)
    for candidate in world.pool.candidates():
        plan.prefix_cache.endpoint_added(candidate)
    parsers = ByPath([parser() for parser in PARSERS if parser.paths])
    world.director = Director(RequestSteps(parsers, plan.profile), world.pool, world.ledger, world.telemetry)
    made = Busy(world, plan.prefix_cache, Exchange(world.director, ExchangeSettings()))
    made.neighbour = made.send("/v1/completions", completion("someone else's prompt " * 100)).exchange
    return made


@pytest.fixture
def picker() -> Iterator[Busy]:
    made = busy()
    yield made
    made.neighbour.closed(1)
    assert len(made.world.ledger) == 0


def refuses(picker: Busy, path: str, body: bytes, status: int = 400) -> str:
    """Send ``body`` in both ways; returns what the client reads."""
    before, said = picker.state(), ""
    for modes in ((FULL_DUPLEX, FULL_DUPLEX), (BUFFERED, NONE)):
        refusals = len(picker.world.telemetry.refusals)
        sent = picker.send(path, body, modes)
        (answer,) = sent.answers
        refusal = answer.immediate_response
        said = refusal.body.decode()
        assert refusal.status.code == status, said
        assert refusal.grpc_status.status == {400: 3, 413: 8}[status]
        assert said.startswith(f"inference error: {'BadRequest' if status == 400 else 'RequestTooLarge'} - ")
        assert len(said) < 1000, "a refusal is a sentence, not an echo"
        assert sent.exchange.over
        sent.exchange.closed(1)
        assert picker.state() == before, "nothing was counted, learnt or lost"
        assert len(picker.world.telemetry.refusals) == refusals + 1
    after = picker.send("/v1/completions", completion())
    assert destination_of(after.answers[0])
    after.exchange.closed(1)
    return said


def accepts(picker: Busy, path: str, body: bytes) -> None:
    """Send ``body``, which goes to an endpoint unchanged and is uncounted when its stream ends."""
    in_flight = len(picker.world.ledger)
    sent = picker.send(path, body)
    assert not sent.refused, sent.answers
    forwarded = b"".join(a.request_body.response.body_mutation.streamed_response.body for a in sent.answers)
    assert forwarded == body
    assert len(picker.world.ledger) == in_flight + 1
    sent.exchange.closed(1)
    assert len(picker.world.ledger) == in_flight


def inside(body: bytes, extra: bytes) -> bytes:
    """Return ``body``, an object, with ``extra`` as its first member."""
    return b"{" + extra + b"," + body[1:]


def with_field(path: str, **fields: object) -> bytes:
    return json.dumps(JSON[path] | fields).encode()


# What every parser is sent as it should be.


@pytest.mark.parametrize("path", VALID)
def test_a_body_as_it_should_be_is_accepted(picker: Busy, path: str) -> None:
    accepts(picker, path, VALID[path])


# Not what the API takes, whatever the API.

NO_JSON: dict[str, Callable[[bytes], bytes]] = {
    "no JSON": lambda body: b"hello",
    "half": lambda body: body[: len(body) // 2],
    "an open bracket": lambda body: b"{",
    "trailing garbage": lambda body: body + b" garbage",
    "two bodies": lambda body: body + body,
    "a byte order mark": lambda body: b"\xef\xbb\xbf" + body,
    "UTF-16": lambda body: body.decode().encode("utf-16"),
    "zeros": lambda body: b"\0" * 1000,
    "10 MB of whitespace": lambda body: b" " * 10_000_000,
    "NaN": lambda body: inside(body, b'"temperature":NaN'),
    "Infinity": lambda body: inside(body, b'"temperature":-Infinity'),
    "a comment": lambda body: inside(body, b"/* hello */"),
    "single quotes": lambda body: inside(body, b"'temperature':1"),
    "a list": lambda body: b"[" + body + b"]",
    "null": lambda body: b"null",
    "a text": lambda body: b'"text"',
    "a number": lambda body: b"1e400",
    "deep in an ignored field": lambda body: inside(body, b'"z":' + b"[" * DEEP + b"]" * DEEP),
    "deep objects in an ignored field": lambda body: inside(body, b'"z":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP),
    "deep and never closed": lambda body: b'{"z":' + b"[" * DEEP,
    "a key that is not UTF-8": lambda body: inside(body, b'"stream\xff":1,"stream":"\xff"'),
    "a stream that is a text": lambda body: inside(body, b'"stream":"yes"'),
    "a stream that is a huge number": lambda body: inside(body, b'"stream":' + b"9" * 5000),
    "a salt that is a number": lambda body: inside(body, b'"cache_salt":1e400'),
    "a salt that is half a character": lambda body: inside(body, b'"cache_salt":"\\ud800"'),
    "a million open braces": lambda body: b"{" * 1_100_000,
    "a million empty objects": lambda body: inside(body, b'"z":[' + b"{}," * 1_000_000 + b"1]"),
    "millions of texts": lambda body: inside(body, b'"z":[' + b'"",' * 1_500_000 + b"1]"),
}  # fmt: skip


@pytest.mark.parametrize("what", NO_JSON)
@pytest.mark.parametrize("path", JUDGED)
def test_what_is_no_json_of_the_right_shape_is_refused(picker: Busy, path: str, what: str) -> None:
    refuses(picker, path, NO_JSON[what](VALID[path]))


@pytest.mark.parametrize("what", NO_JSON)
def test_a_count_that_is_no_json_passes(picker: Busy, what: str) -> None:
    accepts(picker, UNREAD, NO_JSON[what](VALID[UNREAD]))


@pytest.mark.parametrize("path", VALID)
def test_a_body_over_the_limit_is_refused_with_413(picker: Busy, path: str) -> None:
    said = refuses(picker, path, VALID[path] + b" " * LIMIT, status=413)
    assert f"{LIMIT:,}" in said


@pytest.mark.parametrize("path", JUDGED)
def test_an_object_of_nothing_and_one_of_nulls_are_refused(picker: Busy, path: str) -> None:
    refuses(picker, path, b"{}")
    refuses(picker, path, json.dumps(dict.fromkeys(JSON[path])).encode())


@pytest.mark.parametrize("path", [path for path in NAMED if path in JUDGED])
@pytest.mark.parametrize("model", [None, "", 3, [], {}, True, "m" * 1025], ids=lambda model: repr(model)[:8])
def test_a_model_that_is_none_is_refused(picker: Busy, path: str, model: object) -> None:
    assert "model" in refuses(picker, path, with_field(path, model=model))


@pytest.mark.parametrize("path", [path for path in NAMED if path in JUDGED])
def test_a_missing_model_is_refused(picker: Busy, path: str) -> None:
    body = {key: value for key, value in JSON[path].items() if key != "model"}
    assert "model not found in request body" in refuses(picker, path, json.dumps(body).encode())
    refuses(picker, path, inside(json.dumps(body).encode(), b'"model":"\\ud800"'))
    refuses(picker, path, inside(json.dumps(body).encode(), b'"model":"\xff"'))


# Odd, but no mistake of the picker's to judge: what it does not read is the engine's.

ODD: dict[str, Callable[[bytes], bytes]] = {
    "duplicate keys": lambda body: inside(body, b'"model":"other","z":1,"z":2'),
    "a huge float": lambda body: inside(body, b'"temperature":1e400'),
    "a huge integer": lambda body: inside(body, b'"seed":' + b"9" * 5000),
    "whitespace everywhere": lambda body: b"\n\t " * 1000 + body + b" \r\n" * 1000,
    "nulls": lambda body: inside(body, b'"stream":null,"cache_salt":null,"tools":null,"user":null'),
    "nested, but not deeply": lambda body: inside(body, b'"z":' + b"[" * 100 + b"]" * 100),
    "escapes": lambda body: body.replace(b'"x"', b'"\\u0078\\ud83d\\ude00"'),
    "an empty key": lambda body: inside(body, b'"":1'),
}  # fmt: skip


@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("path", JSON)
def test_what_is_odd_and_not_read_passes_as_it_is(picker: Busy, path: str, what: str) -> None:
    accepts(picker, path, ODD[what](VALID[path]))


@pytest.mark.parametrize("path", NAMED)
@pytest.mark.parametrize("model", ["a\nb", "\0\x1b[31m", '"\\', "模型", "🦙" * 200, " ", "../../etc", "{}", "m" * 1024])
def test_a_model_may_have_any_name(picker: Busy, path: str, model: str) -> None:
    body = with_field(path, model=model)
    accepts(picker, path, body)
    labels, _ = picker.world.telemetry.received[-1]
    assert labels.model_name == model


def test_a_body_of_no_bytes_is_a_request_without_a_body(picker: Busy) -> None:
    for path in VALID:
        sent = picker.send(path, b"", (BUFFERED, NONE))
        assert not sent.refused
        sent.exchange.closed(1)


# Prompts.

NO_PROMPT: list[object] = ["", [], {}, 7, True, [[]], [["a"]], [[[1]]], ["a", 1], [1, "a"], [1, [2]], [[1], []],
                           [None], [1.5], [True], [-1], [2**32], [2**64], [-(2**70)], [1e3], "\ud800", [[-1]],
                           [[2**32]]]  # fmt: skip


@pytest.mark.parametrize("prompt", NO_PROMPT, ids=lambda prompt: repr(prompt)[:12])
@pytest.mark.parametrize("path", PROMPTS)
def test_what_is_no_prompt_is_refused_and_the_field_named(picker: Busy, path: str, prompt: object) -> None:
    fields: dict[str, object] = {PROMPTS[path]: prompt} | ({"text": None} if path == "/generate" else {})
    said = refuses(picker, path, with_field(path, **fields))
    assert PROMPTS[path] in said or "JSON" in said


@pytest.mark.parametrize("path", PROMPTS)
@pytest.mark.parametrize("number", [b"9" * 5000, b"1e400", b"-0.0", b"1E3", b"NaN", b"0x10", b"01", b"1_000"])
def test_numbers_that_are_no_token_ids_are_refused(picker: Busy, path: str, number: bytes) -> None:
    body = with_field(path, **{PROMPTS[path]: [1, 2, "?"]} | ({"text": None} if path == "/generate" else {}))
    refuses(picker, path, body.replace(b'"?"', number))


@pytest.mark.parametrize("path", PROMPTS)
def test_token_ids_may_be_any_unsigned_words(picker: Busy, path: str) -> None:
    fields = {PROMPTS[path]: [0, 2**32 - 1] * 50_000} | ({"text": None} if path == "/generate" else {})
    accepts(picker, path, with_field(path, **fields))


LISTS = {"/v1/chat/completions": "messages", "/v1/messages": "messages", "/v1/responses": "input"}
NO_LIST: list[object] = [[], 7, {}, [7], [None], [[]], ["x"], [{"role": 1}], [{"role": "user", "content": 7}],
                         [{"role": "user", "content": [7]}], [{"role": "user", "content": [[TURN]]}],
                         [{"role": "user", "content": {"text": "x"}}], [{"role": "user", "content": [{"text": 3}]}],
                         [{"role": "\ud800", "content": "x"}]]  # fmt: skip


@pytest.mark.parametrize("messages", NO_LIST, ids=lambda value: repr(value)[:40])
@pytest.mark.parametrize("path", LISTS)
def test_what_is_no_conversation_is_refused(picker: Busy, path: str, messages: object) -> None:
    refuses(picker, path, with_field(path, **{LISTS[path]: messages}))


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize(
    "part", [{"type": "hologram", "depth": 1}, {"type": "text"}, {"type": "image_url"}, {"type": None}, {}]
)
def test_content_of_unknown_kinds_is_the_engines_to_judge(picker: Busy, path: str, part: object) -> None:
    accepts(picker, path, with_field(path, **{LISTS[path]: [{"role": "user", "content": [part]}]}))


@pytest.mark.parametrize("path", LISTS)
def test_a_conversation_nested_too_deeply_is_refused(picker: Busy, path: str) -> None:
    deep = b"[" * DEEP + b"]" * DEEP
    for field in (b'"tool_calls":' + deep, b'"content":' + deep, b'"z":' + deep):
        refuses(picker, path, with_field(path, **{LISTS[path]: "?"}).replace(b'"?"', b"[{" + field + b"}]"))


def test_results_within_results_are_refused_before_they_are_too_deep(picker: Busy) -> None:
    deep = b'[{"type":"tool_result","content":' * DEEP + b'"x"' + b"}]" * DEEP
    body = b'{"model":"m","messages":[{"role":"user","content":' + deep + b"}]}"
    refuses(picker, "/v1/messages", body)


# gRPC.


@pytest.mark.parametrize("path", GRPC)
@pytest.mark.parametrize(
    "body",
    [
        b"\0",
        b"\0\0\0\0\x05ab",
        b"\0\xff\xff\xff\xff",
        frame(b"\xff" * 100),
        frame(b"") + frame(b""),
        frame(b"\x0b" * DEEP),
        b"{}",
        b"\x02" + frame(b"")[1:],
        frame(b""),
    ],
    ids=repr,
)
def test_what_is_no_grpc_request_is_refused(picker: Busy, path: str, body: bytes) -> None:
    refuses(picker, path, body)


@pytest.mark.parametrize("path", GRPC)
def test_a_compressed_grpc_request_is_refused_as_not_implemented(picker: Busy, path: str) -> None:
    (answer,) = picker.send(path, b"\x01" + VALID[path][1:]).answers
    assert (answer.immediate_response.status.code, answer.immediate_response.grpc_status.status) == (400, 12)


# Anything at all.

TOKENS = [b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\\u", b"null", b"-", b"1e400", b"\xff", b"\xed\xa0\x80",
          b'"model"', b'"messages"', b'"prompt"', b'"content"', b'"type"', b"\0", b" ", b"\xfe"]  # fmt: skip
PICKER = busy()


@given(
    st.sampled_from(sorted(VALID)),
    st.lists(
        st.tuples(st.integers(0, 500), st.integers(0, 8), st.sampled_from(TOKENS) | st.binary(max_size=4)), max_size=6
    ),
    st.booleans(),
)
def test_no_change_to_a_valid_body_does_more_than_refuse_it(
    path: str, changes: list[tuple[int, int, bytes]], framed: bool
) -> None:
    body = GRPC[path] if framed and path in GRPC else VALID[path]
    for at, length, new in changes:
        at %= len(body) + 1
        body = body[:at] + new + body[at + length :]
    check_anything(path, frame(body) if framed and path in GRPC else body)


@given(st.sampled_from(sorted(VALID)), st.binary(min_size=1, max_size=200), st.booleans())
def test_no_bytes_do_more_than_be_refused(path: str, body: bytes, framed: bool) -> None:
    check_anything(path, frame(body) if framed else body)


def check_anything(path: str, body: bytes) -> None:
    in_flight = len(PICKER.world.ledger)
    sent = PICKER.send(path, body, (BUFFERED, NONE))
    (answer,) = sent.answers
    if sent.refused:
        assert answer.immediate_response.status.code == 400
    assert len(PICKER.world.ledger) == in_flight + (not sent.refused)
    sent.exchange.closed(1)
    assert len(PICKER.world.ledger) == in_flight
