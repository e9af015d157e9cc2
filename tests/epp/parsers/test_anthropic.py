"""The Messages API: the chat that an engine makes of a body, which differs for every other chat."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.errors import BadRequest
from epp.parsers import AnthropicParser, OpenAIParser, Parsed
from epp.parsers.base import UNREAD

PARSER = AnthropicParser()
PATH, COUNT = "/v1/messages", "/v1/messages/count_tokens"

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5) | st.sampled_from(["a", "c", "user"])
sources = st.sampled_from([{"type": "url", "url": "http://x"}, {"type": "base64", "media_type": "i/p", "data": "AA=="}])
text_blocks = st.builds(lambda text: {"type": "text", "text": text}, texts)
images = st.builds(lambda source: {"type": "image", "source": source}, sources)
thoughts = st.builds(lambda text: {"type": "thinking", "thinking": text, "signature": "s"}, texts)
calls = st.builds(lambda n, m: {"type": "tool_use", "id": n, "name": m, "input": {"x": n}}, texts, texts)
results = st.builds(
    lambda n, content, failed: {"type": "tool_result", "tool_use_id": n, "content": content, "is_error": failed},
    texts,
    texts | st.lists(text_blocks | images, min_size=1, max_size=3),
    st.booleans(),
)
blocks = st.one_of(text_blocks, images, thoughts, calls, results)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant"]), "content": texts | st.lists(blocks, min_size=1, max_size=4)}
)
conversations = st.lists(messages, min_size=1, max_size=4)
tools = st.lists(st.builds(lambda n: {"name": n, "input_schema": {"type": "object"}}, texts), max_size=2)


def parse(messages: list[Any], path: str = PATH, **more: object) -> Parsed:
    return PARSER.parse(path, json.dumps({"model": "m", "max_tokens": 1, "messages": messages} | more).encode())


def render(messages: list[Any], **more: object) -> bytes:
    (prompt,) = parse(messages, **more).prompts
    return prompt.data


def said(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def answered(result: dict[str, Any]) -> Any:
    """What a tool answered: several texts are one, of several lines."""
    parts = said(result["content"])
    if all(part["type"] == "text" for part in parts):
        parts = [{"type": "text", "text": "\n".join(part["text"] for part in parts)}]
    return (parts, result["tool_use_id"], result["is_error"])


ORDER = {"thinking": 0, "tool_use": 2}


def meaning(messages: list[Any]) -> list[Any]:
    """The chat that an engine makes of it."""
    chat: list[Any] = []
    for message in messages:
        rest = said(message["content"])
        if message["role"] == "user":
            chat += [("tool", answered(block)) for block in rest if block["type"] == "tool_result"]
            others = [block for block in rest if block["type"] != "tool_result"]
            if rest and not others:
                continue
            rest = others
        ordered = sorted(rest, key=lambda block: ORDER.get(block["type"], 1))
        chat.append(
            (message["role"], [answered(block) if block["type"] == "tool_result" else block for block in ordered])
        )
    return chat


@given(conversations, conversations)
def test_conversations_are_the_same_bytes_just_where_they_are_the_same_chat(one: list[Any], other: list[Any]) -> None:
    assert (render(one) == render(other)) == (meaning(one) == meaning(other))


@given(conversations, conversations, tools, st.none() | texts)
def test_a_continued_conversation_extends_the_bytes_of_the_earlier_one(
    messages: list[Any], more: list[Any], tools: list[Any], system: str | None
) -> None:
    longer = render(messages + more, tools=tools, system=system)
    assert longer.startswith(render(messages, tools=tools, system=system))


@given(conversations, tools, st.data())
def test_where_the_client_marks_its_cache_changes_nothing(
    messages: list[Any], tools: list[Any], data: st.DataObject
) -> None:
    def marked(value: Any) -> Any:
        if isinstance(value, list):
            return [marked(each) for each in value]
        if isinstance(value, dict):
            mark = {"cache_control": {"type": "ephemeral"}} if data.draw(st.booleans()) else {}
            content = {"content": marked(value["content"])} if "content" in value else {}
            return value | content | mark
        return value

    assert render(marked(messages), tools=marked(tools), cache_control={"type": "ephemeral"}) == render(
        messages, tools=tools
    )


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant"]), texts), min_size=1, max_size=4), st.none() | texts)
def test_a_conversation_of_texts_is_the_chat_of_the_other_api(said: list[tuple[str, str]], system: str | None) -> None:
    listed = [{"role": role, "content": [{"type": "text", "text": text}]} for role, text in said]
    chat = [{"role": "system", "content": system}] if system else []
    chat += [{"role": role, "content": text} for role, text in said]
    body = json.dumps({"model": "m", "messages": chat}).encode()
    assert parse(listed, system=system).prompts == OpenAIParser().parse("/v1/chat/completions", body).prompts


def test_a_tools_answer_is_the_tool_message_of_the_other_api() -> None:
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "42"}]}
    body = {"model": "m", "messages": [{"role": "tool", "tool_call_id": "t1", "content": "42"}]}
    chat = OpenAIParser().parse("/v1/chat/completions", json.dumps(body).encode())
    assert parse([{"role": "user", "content": [result]}]).prompts == chat.prompts


def test_a_system_of_blocks_is_their_text_without_what_changes_with_every_request() -> None:
    turn = [{"role": "user", "content": "x"}]
    blocks = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=12345;"},
        {"type": "text", "text": "be "},
        {"type": "text", "text": "brief", "cache_control": {"type": "ephemeral"}},
    ]
    assert render(turn, system=blocks) == render(turn, system="be brief")
    assert render(turn, system="") == render(turn)


def test_tools_change_the_first_bytes() -> None:
    turn = [{"role": "user", "content": "x"}]
    one, other = ({"tools": [{"name": name, "input_schema": {}}]} for name in "ab")
    assert len({render(turn)[:2], render(turn, **one)[:2]}) == 2
    assert render(turn, **one) != render(turn, **other)
    assert render(turn, tools=[]) == render(turn, tools=None) == render(turn)


def block_of(kind: str, **more: object) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": [{"type": kind} | more]}]


def test_blocks_of_every_kind_tell_conversations_apart() -> None:
    conversations = [
        block_of("text", text="a"),
        block_of("thinking", thinking="a"),
        block_of("redacted_thinking", data="a"),
        block_of("redacted_thinking", data="b"),
        block_of("image", source={"type": "url", "url": "a"}),
        block_of("document", source={"type": "url", "url": "a"}),
        block_of("document", source={"type": "url", "url": "a"}, title="t"),
        block_of("document", source={"type": "url", "url": "a"}, context="t"),
        block_of("tool_use", id="a", name="f", input={}),
        block_of("tool_use", id="a", name="f", input={"x": 1}),
        block_of("server_tool_use", id="a", name="g", input={}),
        block_of("tool_result", tool_use_id="a", content="a"),
        block_of("web_search_tool_result", tool_use_id="a", content="b"),
        block_of("tool_result", tool_use_id="a", content="a", is_error=True),
        block_of("tool_result", tool_use_id="a"),
        block_of("hologram", depth=1),
        block_of("hologram", depth=2),
        block_of("image"),
        [{"role": "assistant", "content": ""}],
        [{"role": "assistant", "content": []}],
    ]
    assert len({render(each) for each in conversations}) == len(conversations)


def test_counting_tokens_computes_nothing() -> None:
    counted = parse([{"role": "user", "content": "x"}], COUNT)
    assert (counted.model, counted.prompts, counted.prompt_tokens, counted.streaming) == ("m", (), 1, False)


@pytest.mark.parametrize("body", [b'{"model":"m","messages":[]}', b"{", b'{"messages":[{"role":"user"}]}', b"\xff"])
def test_a_count_that_cannot_be_read_is_left_to_the_engine(body: bytes) -> None:
    assert PARSER.parse(COUNT, body) == UNREAD
    with pytest.raises(BadRequest):
        PARSER.parse(PATH, body)


def test_model_stream_and_salt_are_read() -> None:
    turn = [{"role": "user", "content": "x"}]
    assert parse(turn, stream=True).streaming
    assert parse(turn, cache_salt="s").prompts != parse(turn).prompts
    body = PARSER.parse(PATH, b'{"messages":[{"role":"user","content":"x"}], "model": "m"}', "n").body
    assert body == b'{"messages":[{"role":"user","content":"x"}], "model": "n"}'


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "`messages` must hold at least one message"),
        ({"messages": []}, "`messages` must hold at least one message"),
        ({"messages": [{"role": "user", "content": 3}]}, r"\$.messages\[0\].content"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, r"\$.messages\[0\].content\[0\]"),
        ({"messages": [{"role": "user", "content": "x"}], "system": 3}, r"\$.system"),
        ({"messages": [{"role": "user", "content": "x"}], "tools": [3]}, r"\$.tools\[0\]"),
        ({"messages": [{"role": "user", "content": "x"}], "model": None}, "model not found in request body"),
    ],
)
def test_a_body_of_the_wrong_shape_is_refused_and_the_field_named(body: dict[str, object], text: str) -> None:
    with pytest.raises(BadRequest, match=text):
        PARSER.parse(PATH, json.dumps({"model": "m"} | body).encode())


@pytest.mark.parametrize(
    "field", [b'"tools":[{"name":"\xfe"}]', b'"messages":[{"content":[{"type":"tool_use","name":"f","input":"\xff"}]}]']
)
def test_bytes_that_are_not_utf8_cannot_forge_a_separator(field: bytes) -> None:
    with pytest.raises(BadRequest):
        PARSER.parse(PATH, b'{"model":"m","messages":[{"role":"user","content":"x"}],' + field + b"}")
