"""Bodies made to cost much: refused by a limit that is named, whatever their size; texts may say what they like."""

from __future__ import annotations

import json
from array import array
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from epp.errors import BadRequest
from epp.parsers import PARSERS, ByPath, structure
from epp.parsers.canonical import MOST_PIECES
from epp.parsers.grpc_body import frame
from epp.parsers.media import MOST_MEDIA
from epp.parsers.rewrite import MOST_MODELS, with_model
from epp.parsers.structure import MOST_OBJECTS, MOST_TEXTS, MOST_VALUES, pieces, without_escapes
from epp.pb.vllm_engine_pb2 import GenerateRequest

READ = ByPath([parser() for parser in PARSERS])
CHAT, COMPLETIONS, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"

# Structure.


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"{},", "at most 50,000 objects and lists"),
        (b"[],", "at most 50,000 objects and lists"),
        (b'"",', "at most 150,000 texts and keys"),
        (b"1,", "at most 1,100,000 values"),
        (b"{}," + b" " * 58, "at most 50,000 objects and lists"),  # in step with a sample of each 61st byte
    ],
)
@pytest.mark.parametrize("field", [b'"messages":[', b'"z":['])
def test_a_body_of_very_many_small_values_is_refused_before_it_is_decoded(
    value: bytes, text: str, field: bytes
) -> None:
    many = value * (max(MOST_OBJECTS, MOST_TEXTS, MOST_VALUES) + 10 if len(value) < 5 else 3 * MOST_OBJECTS)
    with pytest.raises(BadRequest, match=text):
        READ.parse(CHAT, b'{"model":"m",' + field + many + b"1]}")


@pytest.mark.parametrize(
    ("value", "count"), [(b"{},", MOST_OBJECTS - 10), (b'"",', MOST_TEXTS - 10), (b"1,", MOST_VALUES - 10)]
)
def test_a_body_just_within_a_limit_is_read(value: bytes, count: int) -> None:
    body = b'{"model":"m","prompt":"x","z":[' + value * count + b"1]}"
    assert READ.parse(COMPLETIONS, body).prompt_tokens == 1


@pytest.mark.parametrize("code", ['{[",', "\\{[,", '\\"[', '\\\\"{,', "\n[{,é"])
def test_a_text_may_hold_any_amount_of_code(code: str) -> None:
    text = code * 300_000
    for ascii_only in (True, False):
        body = json.dumps({"model": "m", "prompt": text}, ensure_ascii=ascii_only).encode()
        (prompt,) = READ.parse(COMPLETIONS, body).prompts
        assert prompt.data == text.encode()


@pytest.mark.parametrize(("mib", "is_read"), [(16, True), (18, False)])
def test_sixteen_mib_of_code_are_read_and_more_is_refused_without_a_search(mib: int, is_read: bool) -> None:
    text = b'if(a){b[c]=\\"x\\";d(e,f)}'
    body = b'{"model":"m","prompt":"' + text * (mib * (1 << 20) // len(text)) + b'"}'
    if is_read:
        assert READ.parse(COMPLETIONS, body).prompts
    else:
        with pytest.raises(BadRequest, match="at most 17 MiB of a body so full of brackets"):
            READ.parse(COMPLETIONS, body)


def test_a_large_text_is_read_at_any_size() -> None:
    body = b'{"model":"m","prompt":"' + b"lorem ipsum, " * (31 * (1 << 20) // 13) + b'"}'
    assert READ.parse(COMPLETIONS, body).prompts


def test_a_million_token_ids_are_read() -> None:
    body = json.dumps({"model": "m", "prompt": list(range(1_048_576))}).encode()
    assert READ.parse(COMPLETIONS, body).prompt_tokens == 1_048_576


def test_a_body_that_is_searched_for_texts_has_no_end_of_backslashes() -> None:
    body = b'{"model":"m","prompt":"' + b"\\\\" * 2_500_000 + b'","z":[' + b"{}," * 60_000 + b"1]}"
    with pytest.raises(BadRequest, match="at most 4,000,000 backslashes"):
        READ.parse(COMPLETIONS, body)


def test_what_cannot_hold_much_is_not_looked_at() -> None:
    class Unsliced(bytes):
        def __getitem__(self, key: Any) -> Any:
            raise AssertionError("looked at")

    structure.check_structure(Unsliced(b"{}," * 33_000))


json_values = st.recursive(
    st.integers(0, 9) | st.text(st.sampled_from('\\"{}[],:a'), max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.sampled_from('\\"{,a'), max_size=3), inner),
    max_leaves=10,
)


@given(json_values)
@example(["\\", '"', '\\"', '"\\'])
def test_texts_are_told_from_what_stands_between_them(value: Any) -> None:
    def count(inner: Any) -> tuple[int, int]:
        """Objects and lists; texts and keys."""
        if isinstance(inner, str):
            return 0, 1
        if not isinstance(inner, dict | list):
            return 0, 0
        below = [count(one) for one in (inner.values() if isinstance(inner, dict) else inner)]
        keys = len(inner) if isinstance(inner, dict) else 0
        return 1 + sum(objects for objects, _ in below), keys + sum(texts for _, texts in below)

    body = json.dumps(value).encode()
    split = pieces(without_escapes(body))
    outside = b"".join(split[::2])
    assert (outside.count(b"{") + outside.count(b"["), len(split) // 2) == count(value)


# Messages, parts, media.


@pytest.mark.parametrize(
    ("path", "before", "one", "after"),
    [
        (CHAT, b'"messages":[', b"{}", b"]"),
        (CHAT, b'"messages":[{"content":[', b'{"text":"a"}', b"]}]"),
        (CHAT, b'"messages":[{"content":[', b'"a"', b"]}]"),
        (RESPONSES, b'"input":[', b'{"role":"user","content":"a"}', b"]"),
        (MESSAGES, b'"messages":[', b"{}", b"]"),
        (MESSAGES, b'"messages":[{"role":"user","content":[', b'{"type":"text","text":"a"}', b"]}]"),
        (MESSAGES, b'"messages":[{"role":"user","content":[{"type":"tool_result","content":[', b"{}", b"]}]}]"),
    ],
)
def test_messages_and_parts_are_bounded_and_the_limit_is_named(
    path: str, before: bytes, one: bytes, after: bytes
) -> None:
    def body(count: int) -> bytes:
        return b'{"model":"m",' + before + b",".join([one] * count) + after + b"}"

    assert READ.parse(path, body(MOST_PIECES - 2)).prompts
    with pytest.raises(BadRequest, match="messages and parts of messages; at most 20,000 are read"):
        READ.parse(path, body(MOST_PIECES + 1))


@pytest.mark.parametrize(
    ("path", "part", "digests"),
    [
        (CHAT, {"uuid": 1, "file": 1, "thinking": 1, "file_id": 1}, 4),
        (CHAT, {"image_url": "a"}, 1),
        (MESSAGES, {"type": "image", "source": "a"}, 1),
        (MESSAGES, {"type": "redacted_thinking", "data": "a"}, 1),
    ],
)
def test_media_are_bounded_and_the_limit_is_named(path: str, part: dict[str, object], digests: int) -> None:
    def body(count: int) -> bytes:
        return json.dumps({"model": "m", "messages": [{"role": "user", "content": [part] * count}]}).encode()

    assert READ.parse(path, body(MOST_MEDIA // digests)).prompts
    with pytest.raises(BadRequest, match="ids of such: at most 10,000 are read"):
        READ.parse(path, body(MOST_MEDIA // digests + 1))


@pytest.mark.parametrize("ids", [MOST_VALUES, MOST_VALUES + 1])
def test_token_ids_by_grpc_have_the_limit_that_others_have(ids: int) -> None:
    body = frame(GenerateRequest(tokenized={"input_ids": array("I", [1]) * ids}).SerializeToString())
    path = "/vllm.grpc.engine.VllmEngine/Generate"
    if ids <= MOST_VALUES:
        assert READ.parse(path, body).prompt_tokens == ids
    else:
        with pytest.raises(BadRequest, match=r"`tokenized.input_ids` holds 1,100,001 token ids; at most 1,100,000"):
            READ.parse(path, body)


# Models.


@pytest.mark.parametrize("key", [b'"model"', b'"\\u006dodel"', b'"model" \n'])
def test_a_body_may_name_its_model_so_often_and_no_more(key: bytes) -> None:
    def body(models: int, model: bytes = b'"a"') -> bytes:
        return b'{"x":"model",' + (key + b":" + model + b",") * models + b'"prompt":"model"}'

    for models in (1, 2, MOST_MODELS):
        assert with_model(body(models), "b") == body(models, b'"b"')
        assert READ.parse(COMPLETIONS, body(models), "b").body == body(models, b'"b"')
    with pytest.raises(BadRequest, match="too often: 100 times at most"):
        READ.parse(COMPLETIONS, body(MOST_MODELS + 1), "b")


@given(json_values, st.sampled_from([None, "a", "", '\\"', "model"]), st.booleans(), st.sampled_from([None, 1]))
def test_whatever_stands_around_it_the_models_value_alone_is_replaced(
    value: Any, model: str | None, first: bool, indent: int | None
) -> None:
    around = {"z": {"model": value, "y": "model"}, "model ": [value]}
    body = {"model": model} | around if first else around | {"model": model}
    raw = json.dumps(body, indent=indent)
    expected = json.dumps(body | {"model": "n"}, indent=indent)
    assert with_model(raw.encode(), "n", named=bool(model)) == expected.encode()
    assert (
        with_model(json.dumps({"model": model} | {"z": value}).encode(), "n", named=bool(model))
        == json.dumps({"model": "n", "z": value}).encode()
    )


def test_a_model_found_at_once_is_replaced_without_a_look_at_the_rest() -> None:
    class Searched(bytes):
        replaced = 0

        def replace(self, *args: Any) -> bytes:
            self.replaced += 1
            return super().replace(*args)

    body = Searched(b'{"prompt":"\\"model\\"","model":"m","z":{"model ":1}}')
    assert with_model(body, "n", named=True) == bytes(body).replace(b'"m"', b'"n"')
    assert body.replaced == 0
