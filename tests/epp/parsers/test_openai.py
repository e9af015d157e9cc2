"""What ``openai-parser`` reads from a body, and what it refuses."""

from __future__ import annotations

import json
from array import array
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.errors import BadRequest
from epp.parsers import OpenAIParser, Parsed
from epp.parsers.identity import identity

PARSER = OpenAIParser()
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
EMBEDDINGS, RESPONSES = "/v1/embeddings", "/v1/responses"


def parse(path: str, target_model: str | None = None, /, **body: object) -> Parsed:
    return PARSER.parse(path, json.dumps({"model": "m"} | body).encode(), target_model)


def data(parsed: Parsed) -> list[bytes]:
    return [prompt.data for prompt in parsed.prompts]


@pytest.mark.parametrize("path", [COMPLETIONS, EMBEDDINGS])
def test_texts_are_their_utf8(path: str) -> None:
    field = "prompt" if path == COMPLETIONS else "input"
    assert data(parse(path, **{field: "héllo"})) == ["héllo".encode()]
    assert data(parse(path, **{field: ["a", "b"]})) == [b"a", b"b"]


@pytest.mark.parametrize("path", [COMPLETIONS, EMBEDDINGS])
def test_token_ids_are_little_endian_words_and_counted_exactly(path: str) -> None:
    field = "prompt" if path == COMPLETIONS else "input"
    one = parse(path, **{field: [1, 4294967295]})
    assert data(one) == [b"\x01\0\0\0\xff\xff\xff\xff"]
    assert one.prompt_tokens == 2
    many = parse(path, **{field: [[1], [2, 3]]})
    assert data(many) == [b"\x01\0\0\0", b"\x02\0\0\0\x03\0\0\0"]
    assert many.prompt_tokens == 3


def test_text_counts_four_bytes_a_token_and_never_zero() -> None:
    assert parse(COMPLETIONS, prompt="a" * 401).prompt_tokens == 101
    assert parse(COMPLETIONS, prompt=["", ""]).prompt_tokens == 1


def test_a_stream_is_a_stream_when_it_says_so() -> None:
    assert parse(COMPLETIONS, prompt="x", stream=True).streaming
    assert not parse(COMPLETIONS, prompt="x", stream=None).streaming


def test_the_longest_suffix_names_the_shape() -> None:
    assert data(parse("/openai/v1/chat/completions", messages=[{"role": "user", "content": "x"}]))
    assert data(parse("/gateway/completions", prompt="x"))


@pytest.mark.parametrize("path", ["/v1/rerank", "/completions/", "/", "", "/v1/uncompletions"])
def test_an_unknown_path_is_refused_by_name(path: str) -> None:
    with pytest.raises(BadRequest, match=f"no parser for path '{path}'"):
        parse(path, prompt="x")


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        (COMPLETIONS, {}, "`prompt` must hold"),
        (COMPLETIONS, {"prompt": ""}, "`prompt` must hold"),
        (COMPLETIONS, {"prompt": []}, "`prompt` must hold"),
        (COMPLETIONS, {"prompt": [[]]}, "`prompt` mixes"),
        (COMPLETIONS, {"prompt": ["a", 1]}, "`prompt` mixes"),
        (COMPLETIONS, {"prompt": [-1]}, "`prompt`: a token id must lie between"),
        (COMPLETIONS, {"prompt": [2**32]}, "`prompt`: a token id must lie between"),
        (COMPLETIONS, {"prompt": [2**70]}, r"prompt"),
        (COMPLETIONS, {"prompt": 7}, r"\$.prompt"),
        (COMPLETIONS, {"prompt": [True]}, r"\$.prompt"),
        (COMPLETIONS, {"prompt": "x", "model": None}, "model not found in request body"),
        (COMPLETIONS, {"prompt": "x", "model": ""}, "model not found in request body"),
        (COMPLETIONS, {"prompt": "x", "model": 3}, r"\$.model"),
        (CHAT, {}, "`messages` must hold"),
        (CHAT, {"messages": []}, "`messages` must hold"),
        (CHAT, {"messages": [{"role": "user", "content": 3}]}, r"\$.messages\[0\].content"),
        (EMBEDDINGS, {"input": {}}, r"\$.input"),
        (RESPONSES, {"input": None}, "`input` must hold"),
        (RESPONSES, {"input": []}, "`input` must hold"),
    ],
)
def test_a_body_of_the_wrong_shape_is_refused_and_the_field_named(
    path: str, body: dict[str, object], text: str
) -> None:
    with pytest.raises(BadRequest, match=text):
        parse(path, **body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b'"text"',
        b"{",
        b"\xef\xbb\xbf{}",
        b'{"model":"m","prompt":"\xff"}',
        b'{"model":"m","prompt":"\\ud800"}',
        b'{"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        b'{"prompt":' + b"[" * 200_000,
        b'{"model":"m","prompt":"x"} trailing',
        b"\0" * 100,
    ],
    ids=lambda body: repr(body[:20]),
)
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT, EMBEDDINGS, RESPONSES])
def test_bytes_that_are_no_request_are_refused(path: str, body: bytes) -> None:
    with pytest.raises(BadRequest):
        PARSER.parse(path, body)


@given(st.binary(max_size=300), st.sampled_from([COMPLETIONS, CHAT, EMBEDDINGS, RESPONSES]))
def test_no_bytes_at_all_break_the_parser(noise: bytes, path: str) -> None:
    for body in (noise, b'{"model":"m","prompt":"' + noise, b'{"model":"m","messages":[{"content":"' + noise + b'"}]}'):
        with suppress(BadRequest):
            PARSER.parse(path, body)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 2**33) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ("model", "prompt", "input", "messages", "stream", "tools", "cache_salt", "instructions", "unknown")


@given(
    st.dictionaries(st.sampled_from(FIELDS), json_values), st.sampled_from([COMPLETIONS, CHAT, EMBEDDINGS, RESPONSES])
)
def test_any_json_is_understood_or_refused(body: dict[str, object], path: str) -> None:
    try:
        parsed = PARSER.parse(path, json.dumps(body).encode())
    except BadRequest:
        return
    assert parsed.model
    assert parsed.prompts
    assert parsed.prompt_tokens >= 1


def test_of_a_repeated_key_the_last_counts() -> None:
    body = b'{"model":"a","prompt":"x","model":"b"}'
    assert PARSER.parse(COMPLETIONS, body).model == "b"
    assert PARSER.parse(COMPLETIONS, body, "c").body == b'{"model":"c","prompt":"x","model":"c"}'


# Identity.


def test_the_identity_separates_kind_model_and_salt() -> None:
    message = [{"role": "user", "content": "x"}]
    requests = [
        parse(COMPLETIONS, prompt="x"),
        parse(COMPLETIONS, prompt=[120]),
        parse(CHAT, messages=message),
        parse(COMPLETIONS, prompt="x", model="n"),
        parse(COMPLETIONS, prompt="x", cache_salt="s"),
        parse(COMPLETIONS, prompt="x", model="ms"),
        parse(COMPLETIONS, "lora", prompt="x"),
    ]
    assert len({parsed.prompts[0].identity for parsed in requests}) == len(requests)


def test_the_identity_follows_the_model_that_serves() -> None:
    assert parse(COMPLETIONS, "n", prompt="x").prompts == parse(COMPLETIONS, prompt="x", model="n").prompts


def test_embeddings_of_a_text_share_its_identity() -> None:
    assert parse(EMBEDDINGS, input="x").prompts == parse(COMPLETIONS, prompt="x").prompts


# Rewriting the model.


def test_a_body_is_left_alone_without_a_rewrite() -> None:
    assert parse(COMPLETIONS, prompt="x").body is None
    assert parse(COMPLETIONS, "m", prompt="x").body is None


def test_a_rewrite_changes_the_model_and_no_other_byte() -> None:
    body = b' { "a":[{"model":"m"}], "model" :\n "m\\u00e9", "t":1e400, "prompt":"\\"model\\":" , "z":{"model":"m"}} '
    rewritten = PARSER.parse(COMPLETIONS, body, 'q"é').body
    assert rewritten == body.replace(b'"m\\u00e9"', '"q\\"é"'.encode())


def test_a_key_spelled_with_escapes_is_rewritten_too() -> None:
    body = b'{"model":"a","prompt":"x","\\u006d\\u006f\\u0064\\u0065\\u006c":"b"}'
    assert PARSER.parse(COMPLETIONS, body, "c").body == body.replace(b'"a"', b'"c"').replace(b'"b"', b'"c"')


@given(st.dictionaries(st.text(max_size=8), json_values, max_size=6), st.text(min_size=1, max_size=8), st.booleans())
def test_a_rewritten_body_reads_the_same_but_for_its_model(
    more: dict[str, object], model: str, ascii_only: bool
) -> None:
    body = more | {"model": "before", "prompt": "x", "stream": None, "cache_salt": None}
    text = json.dumps(body, ensure_ascii=ascii_only, indent=len(model) % 3)
    try:
        raw = text.encode()
        target = model.encode().decode()
    except UnicodeEncodeError:
        return
    rewritten = PARSER.parse(COMPLETIONS, raw, target).body
    assert rewritten is not None or target == "before"
    assert json.loads(rewritten or raw) == body | {"model": target}


def test_packed_tokens_fit_their_word() -> None:
    assert array("I").itemsize == 4


def test_long_salts_are_told_apart_and_kept_short() -> None:
    salts = ["s" * 1_000_000, "s" * 999_999 + "t", "s" * 256, ""]
    identities = {identity(b"text", "m", salt) for salt in salts}
    assert len(identities) == len(salts)
    assert max(map(len, identities)) < 400


def test_a_model_too_long_to_be_one_is_refused() -> None:
    with pytest.raises(BadRequest, match="at most 1,024"):
        OpenAIParser().parse("/v1/completions", json.dumps({"model": "m" * 2000, "prompt": "x"}).encode())


# Other paths.


def test_rendering_a_prompt_is_checked_and_computes_nothing() -> None:
    for path, body in ((CHAT, {"messages": [{"role": "user", "content": "x"}]}), (COMPLETIONS, {"prompt": "x"})):
        rendered = parse(path + "/render", **body)
        assert (rendered.model, rendered.prompts, rendered.prompt_tokens) == ("m", (), 1)
        with pytest.raises(BadRequest):
            parse(path + "/render")


def test_conversations_have_items_and_no_model() -> None:
    kept = PARSER.parse("/v1/conversations", b'{"items": [{"type":"message"}]}', "n")
    assert (kept.model, kept.target_model, kept.prompts, kept.body) == ("", "", (), None)
    for items in (b"[]", b"[ ]", b"{}", b'"x"', b"null"):
        with pytest.raises(BadRequest, match="`items` must be a list of at least one item"):
            PARSER.parse("/v1/conversations", b'{"items":' + items + b"}")


def test_an_image_is_described_and_shares_nothing_with_a_text() -> None:
    (image,), (text,) = parse("/v1/images/generations", prompt="x").prompts, parse(COMPLETIONS, prompt="x").prompts
    assert image.data == text.data
    assert image.identity != text.identity
    with pytest.raises(BadRequest, match="`prompt` must hold a text"):
        parse("/v1/images/generations")


# Bodies made to cost much.


@pytest.mark.parametrize("prompts", [["ab" * 8] * 3000, [[1, 2, 3, 4]] * 3000])
def test_of_very_many_prompts_the_first_are_told_apart_and_all_are_counted(prompts: list[object]) -> None:
    many = parse(COMPLETIONS, prompt=prompts)
    assert (len(many.prompts), many.prompt_tokens) == (32, 12_000)
