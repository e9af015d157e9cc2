"""Chats as canonical bytes: unambiguous, and a longer conversation extends a shorter one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.errors import BadRequest
from epp.parsers import OpenAIParser

PARSER = OpenAIParser()
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(["a", "ab", "user", "c", ""])
urls = st.sampled_from(["data:a", "data:b", "http://x"])
parts = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, texts),
    st.builds(lambda url: {"type": "image_url", "image_url": {"url": url}}, urls),
    st.builds(lambda data: {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}, urls),
)
calls = st.lists(
    st.builds(lambda n: {"id": n, "function": {"name": n, "arguments": "{}"}}, texts), min_size=1, max_size=2
)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": texts | st.lists(parts, max_size=3)},
    optional={"name": texts, "tool_calls": calls, "tool_call_id": texts},
)
chats = st.lists(messages, min_size=1, max_size=4)
tools = st.none() | st.lists(st.builds(lambda n: {"type": "function", "function": {"name": n}}, texts), max_size=2)


def render(chat: list[dict[str, Any]], path: str = CHAT, **more: object) -> bytes:
    body = {"model": "m", "messages" if path == CHAT else "input": chat} | more
    (prompt,) = PARSER.parse(path, json.dumps(body).encode()).prompts
    return prompt.data


def meaning(chat: list[dict[str, Any]]) -> list[Any]:
    """What a chat says: a text is the same as one text part, and an empty optional field the same as none."""

    def content(value: Any) -> list[Any]:
        listed = [{"type": "text", "text": value}] if isinstance(value, str) else value
        return [part.get("text", part) for part in listed]

    return [
        (
            message["role"],
            content(message["content"]),
            *(message.get(key) or None for key in ("name", "tool_calls", "tool_call_id")),
        )
        for message in chat
    ]


@given(chats, chats)
def test_different_chats_have_different_bytes(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    assert (render(one) == render(other)) == (meaning(one) == meaning(other))


@given(chats, chats, tools)
def test_a_continued_chat_extends_the_bytes_of_the_earlier_one(
    chat: list[dict[str, Any]], more: list[dict[str, Any]], tools: object
) -> None:
    assert render(chat + more, tools=tools).startswith(render(chat, tools=tools))


@given(chats, chats)
def test_a_chat_begins_like_another_only_if_its_first_messages_do(
    one: list[dict[str, Any]], other: list[dict[str, Any]]
) -> None:
    """Cut at the start of a message, the bytes of two chats agree exactly as far as the chats do."""
    shared = 0
    while shared < min(len(one), len(other)) and meaning(one)[shared] == meaning(other)[shared]:
        shared += 1
    a, b = render(one).split(b"\xff")[1:], render(other).split(b"\xff")[1:]
    assert a[:shared] == b[:shared]
    assert shared in (len(a), len(b)) or a[shared] != b[shared]


def test_what_changes_the_whole_prompt_changes_its_first_bytes() -> None:
    chat = [{"role": "user", "content": "x"}]
    heads = [
        {},
        {"tools": [{"type": "function"}]},
        {"documents": [{"text": "x"}]},
        {"chat_template": "x"},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"functions": [{"name": "x"}]},
    ]
    rendered = [render(chat, **head) for head in heads]
    assert len({data[:2] for data in rendered}) == len(heads)


def test_null_is_the_same_as_nothing() -> None:
    chat = [{"role": "assistant", "content": None}]
    nulls = [{"role": "assistant", "content": None, "tool_calls": None, "name": None}]
    assert render(chat) == render(nulls, tools=None, documents=None)


def test_a_plain_text_is_the_same_prompt_as_one_text_part() -> None:
    listed = [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]
    assert render([{"role": "user", "content": "hello"}]) == render(listed)


def test_an_image_counts_by_its_content_in_its_place() -> None:
    def image(url: str) -> list[dict[str, Any]]:
        return [
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "x"}],
            }
        ]

    assert render(image("data:a")) == render(image("data:a"))
    assert render(image("data:a")) != render(image("data:b"))
    assert len(render(image("data:" + "a" * 10_000))) == len(render(image("data:a"))), "its size is not known"


@pytest.mark.parametrize("field", [b'"tools":["\xfe"]', b'"messages":[{"role":"user","tool_calls":["\xff"]}]'])
def test_bytes_that_are_not_utf8_cannot_forge_a_separator(field: bytes) -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"x"}],' + field + b"}"
    with pytest.raises(BadRequest, match="not UTF-8"):
        PARSER.parse(CHAT, body)


# Responses.


def test_a_responses_request_is_the_chat_that_it_stands_for() -> None:
    chat = render([{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}])
    text = {"model": "m", "input": "hello", "instructions": "be brief"}
    items = {"model": "m", "input": [{"role": "user", "content": "hello"}], "instructions": "be brief"}
    for body in (text, items):
        (prompt,) = PARSER.parse(RESPONSES, json.dumps(body).encode()).prompts
        assert prompt.data == chat


def test_items_of_every_kind_tell_conversations_apart() -> None:
    items = [
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{1}"},
        {"type": "function_call_output", "call_id": "1", "output": "a"},
        {"type": "function_call_output", "call_id": "1", "output": "b"},
        {"type": "reasoning", "summary": [{"text": "a"}], "encrypted_content": "x"},
        {"type": "reasoning", "summary": [{"text": "a"}], "encrypted_content": "y"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "data:a"}]},
    ]
    assert len({render([item], RESPONSES) for item in items}) == len(items)


def test_a_continued_response_is_another_conversation() -> None:
    chat = [{"role": "user", "content": "x"}]
    assert render(chat, RESPONSES, previous_response_id="r1")[:2] != render(chat, RESPONSES)[:2]


# What nobody here knows.


@pytest.mark.parametrize(
    ("path", "one", "other"),
    [
        (CHAT, {"content": [{"type": "hologram", "depth": 1}]}, {"content": [{"type": "hologram", "depth": 2}]}),
        (CHAT, {"content": [{"type": "image_url", "uuid": "a"}]}, {"content": [{"type": "image_url", "uuid": "b"}]}),
        (CHAT, {"content": [{"type": "thinking", "thinking": "a"}]}, {"content": [{"type": "thinking"}]}),
        (CHAT, {"function_call": {"name": "f"}}, {"function_call": {"name": "g"}}),
        (CHAT, {"audio": {"id": "a"}}, {"audio": {"id": "b"}}),
        (CHAT, {"tools": [{"name": "a"}]}, {"tools": [{"name": "b"}]}),
        (RESPONSES, {"type": "custom_tool_call", "input": "a"}, {"type": "custom_tool_call", "input": "b"}),
        (RESPONSES, {"type": "item_reference", "id": "a"}, {"type": "item_reference", "id": "b"}),
    ],
)
def test_what_differs_only_in_something_unknown_or_rare_is_told_apart(
    path: str, one: dict[str, Any], other: dict[str, Any]
) -> None:
    before = {"role": "user", "content": "the same"}
    a, b = (render([before, {"role": "user"} | item], path) for item in (one, other))
    assert a != b
    assert a.startswith(render([before], path))
    assert b.startswith(render([before], path))
    assert a == render([before, {"role": "user"} | one], path)
