"""The input of a chat template, and its output."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
import pytest

from epp.errors import ConfigError
from epp.tokens.model.answer import NoTokenIds
from epp.tokens.model.chat import Chat, Unrendered
from epp.tokens.model.template import ChatTemplate
from tests.epp.tokens.trained import CHATML, HEADERS

SHOW = "{% for m in messages %}{{ m | tojson }};{% endfor %}"
SHOW_PARTS = "{% for m in messages %}{{ m | tojson }};{% for part in m.content %}{% endfor %}{% endfor %}"


def user(content: object, **more: object) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def shown(*messages: dict[str, Any], template: str = SHOW, **arguments: object) -> str:
    return ChatTemplate(template, "here").write(messages, None, arguments)


@pytest.mark.parametrize(("message", "text"), [
    (user("hi"), '{"role": "user", "content": "hi"};'),
    (user(None), '{"role": "user", "content": ""};'),
    (user([]), '{"role": "user", "content": ""};'),
    (user(["a", {"type": "text", "text": "b"}]), '{"role": "user", "content": "a\\nb"};'),
    (user([{"type": "input_text", "text": "a"}, {"type": "text", "text": None}]), '{"role": "user", "content": "a"};'),
    (user("hi", name="me", unknown=1), '{"role": "user", "content": "hi", "name": "me"};'),
    ({"role": "system", "content": "x-anthropic-billing-header: cc=1\nBe brief."},
     '{"role": "system", "content": "Be brief."};'),
    ({"role": "system", "content": "x-anthropic-billing-header: cc=1"}, '{"role": "system", "content": ""};'),
    ({"role": "tool", "tool_call_id": "7", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
     '{"role": "tool", "content": "a\\nb", "tool_call_id": "7"};'),
    ({"role": "assistant", "content": None, "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"b": 1, "a": "ü"}'}}]},
     ('{"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"arguments": {"b": 1, "a": "ü"}, '
      '"name": "f"}, "type": "function"}]};')),
    ({"role": "assistant", "content": "x", "tool_calls": []}, '{"role": "assistant", "content": "x"};'),
    ({"role": "assistant", "content": "x", "reasoning_content": "y"},
     '{"role": "assistant", "content": "x", "reasoning": "y", "reasoning_content": "y"};'),
])  # fmt: skip
def test_messages_are_given_as_the_engine_gives_them(message: dict[str, Any], text: str) -> None:
    assert shown(message) == text


@pytest.mark.parametrize("arguments", ["{not json", "[1]", "", None, "null"])
def test_arguments_that_are_no_object_are_an_empty_one(arguments: str | None) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    assert '"arguments": {}' in shown({"role": "assistant", "content": "", "tool_calls": [call]})


def test_contents_are_parts_where_a_template_loops_over_them() -> None:
    parts = '[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]'
    assert (
        shown(user(["a", {"type": "text", "text": "b"}]), template=SHOW_PARTS)
        == f'{{"role": "user", "content": {parts}}};'
    )
    tool = shown({"role": "tool", "content": [{"type": "text", "text": "a"}]}, template=SHOW_PARTS)
    assert tool == '{"role": "tool", "content": "a"};', "tools' answers are texts all the same"


@pytest.mark.parametrize(("template", "in_parts"), [
    (CHATML, False),
    (HEADERS, True),
    ("{% for m in messages %}{% for c in m['content'] %}{% endfor %}{% endfor %}", True),
    ("{% set some = messages %}{% for m in some %}{% for c in m.content | list %}{% endfor %}{% endfor %}", True),
    ("{% set rest = messages[1:] %}{% for m in rest %}{% for c in m.content[1:] %}{% endfor %}{% endfor %}", True),
    ("{% for m in messages %}{% set content = m.content %}{% for c in content %}{% endfor %}{% endfor %}", True),
    ("{% macro s(x) %}{% for c in x %}{% endfor %}{% endmacro %}{% for m in messages %}{{ s(m.content) }}{% endfor %}",
     True),
    (("{% macro s(y, x) %}{% for c in x %}{% endfor %}{% endmacro %}"
      "{% for m in messages %}{{ s(1, x=m.content) }}{% endfor %}"), True),
    (("{% macro s(content) %}{% for c in content %}{% endfor %}{% endmacro %}"
      "{% for m in messages %}{{ m.content }}{% endfor %}"), False),
    ("{% for m in messages %}{% for t in m.tool_calls %}{% endfor %}{{ m.content }}{% endfor %}", False),
    ("{% for m in tools %}{% for c in m.content %}{% endfor %}{% endfor %}", False),
])  # fmt: skip
def test_whether_a_template_takes_parts_is_read_off_it(template: str, in_parts: bool) -> None:
    assert ChatTemplate(template, "here").in_parts is in_parts


@pytest.mark.parametrize(("message", "why"), [
    (user([{"type": "image_url", "image_url": {"url": "data:"}}]), NoTokenIds.MEDIA),
    (user([{"type": "input_audio", "input_audio": {}}]), NoTokenIds.MEDIA),
    (user([{"image_url": "x"}]), NoTokenIds.MEDIA),
    (user([{"type": "tool_reference", "name": "x"}]), NoTokenIds.UNSUPPORTED),
    (user([{"type": "text", "text": 1}]), NoTokenIds.REFUSED),
    (user([1]), NoTokenIds.REFUSED),
    (user(1), NoTokenIds.REFUSED),
    ({"content": "x"}, NoTokenIds.REFUSED),
    ({"role": "assistant", "tool_calls": [{"type": "custom"}]}, NoTokenIds.REFUSED),
    ({"role": "assistant", "tool_calls": 1}, NoTokenIds.REFUSED),
])  # fmt: skip
def test_an_unsupported_request_is_reported(message: dict[str, Any], why: NoTokenIds) -> None:
    with pytest.raises(Unrendered) as caught:
        shown(message)
    assert caught.value.why is why


def test_a_template_that_refuses_or_breaks_refuses_the_request() -> None:
    for template in ("{{ raise_exception('no') }}", "{{ messages.x.y }}", "{{ 1 // 0 }}", "{{ messages.append(1) }}"):
        with pytest.raises(Unrendered) as caught:
            shown(user("x"), template=template)
        assert caught.value.why is NoTokenIds.REFUSED


@pytest.mark.parametrize(
    "template", ["{{ ''.__class__.__mro__ }}", "{{ messages.__class__ }}", "{{ cycler.__init__.__globals__ }}"]
)
def test_a_template_reaches_nothing_but_what_it_is_given(template: str) -> None:
    with pytest.raises(Unrendered):
        shown(user("x"), template="{% set y = " + template[2:-2] + " %}{{ y.x.y }}")


def test_what_clients_send_is_never_read_as_a_template() -> None:
    assert "{{ 7 * 7 }}" in shown(user("{{ 7 * 7 }}"))


def test_a_template_that_is_none_is_an_error_that_names_it() -> None:
    with pytest.raises(ConfigError, match=r"chat\.jinja: no chat template: "):
        ChatTemplate("{% for %}", "chat.jinja")


def test_templates_have_what_they_are_written_for() -> None:
    template = (
        "{%- for m in messages %}\n    {% generation %}{{ m.content }}{% endgeneration %}{% break %}\n{%- endfor %}"
        "{{ strftime_now('%Y') }}{{ {'a': '<ü>'} | tojson }}{{ [1] | tojson(indent=1) }}"
    )
    written = ChatTemplate(template, "here", now=lambda: datetime(2026, 5, 4)).write([user("x"), user("y")], None, {})  # noqa: DTZ001
    assert written == 'x2026{"a": "<ü>"}[\n 1\n]'


@pytest.mark.parametrize(
    ("template", "text"), [(CHATML, "<|im_start|>assistant\nOnce"), (HEADERS, "<|end_header_id|>\n\nOnce")]
)
@pytest.mark.parametrize("content", ["Once", "Once ", [{"type": "text", "text": "Once"}]])
def test_a_last_message_may_be_continued(template: str, text: str, content: object) -> None:
    messages = [user("tell"), {"role": "assistant", "content": content}]
    written = ChatTemplate(template, "here").write(
        messages, None, {"continue_final_message": True, "add_generation_prompt": False, "bos_token": "<s>"}
    )
    assert written.endswith(text + (" " if content == "Once " else ""))


def test_what_a_template_trims_is_trimmed_of_a_continued_message() -> None:
    template = "{% for m in messages %}{{ m.content | trim }}.{% endfor %}"
    assert shown(user(" Once "), template=template, continue_final_message=True) == "Once"


def test_a_last_message_that_the_template_drops_cannot_be_continued() -> None:
    with pytest.raises(Unrendered):
        shown(user("x"), template="nothing", continue_final_message=True)


def test_developers_are_systems_for_templates_that_do_not_know_them() -> None:
    messages = [user("a"), {"role": "developer", "content": "b", "tools": []}, {"role": "system", "content": "c"}]
    assert shown(*messages) == '{"role": "system", "content": "b\\n\\nc"};{"role": "user", "content": "a"};'
    assert shown(*messages[1:2]) == '{"role": "system", "content": "b"};'
    knows = "{% if 'developer' == 1 %}{% endif %}" + SHOW
    assert '"role": "developer", "content": "b", "tools": []' in shown(*messages, template=knows)


def arguments(defaults: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    body = msgspec.json.encode({"messages": [user("x")], **fields})
    return msgspec.json.decode(body, type=Chat).arguments(defaults or {})


def test_arguments_of_the_request_win_over_those_of_the_engine_and_fields_over_both() -> None:
    kwargs = {"x": 2, "add_generation_prompt": False}
    assert arguments({"enable_thinking": False, "x": 1}, chat_template_kwargs=kwargs) == {
        "documents": None, "enable_thinking": False, "x": 2, "add_generation_prompt": True,
        "continue_final_message": False,
    }  # fmt: skip


def test_an_effort_says_whether_there_is_thinking() -> None:
    assert arguments(reasoning_effort="low")["enable_thinking"] is True
    assert arguments(reasoning_effort="none")["enable_thinking"] is False
    assert (
        arguments(reasoning_effort="low", chat_template_kwargs={"enable_thinking": False})["enable_thinking"] is False
    )


@pytest.mark.parametrize(("fields", "why"), [
    ({"chat_template": "{{ x }}"}, NoTokenIds.UNSUPPORTED),
    ({"chat_template_kwargs": {"chat_template": "x"}}, NoTokenIds.UNSUPPORTED),
    ({"chat_template_kwargs": {"tools": []}}, NoTokenIds.UNSUPPORTED),
    ({"truncate_prompt_tokens": 3}, NoTokenIds.UNSUPPORTED),
    ({"kv_transfer_params": {"prompt_token_ids": [1]}}, NoTokenIds.UNSUPPORTED),
    ({"continue_final_message": True}, NoTokenIds.REFUSED),
])  # fmt: skip
def test_what_the_engine_refuses_or_does_in_its_own_way_is_not_guessed(fields: dict[str, Any], why: NoTokenIds) -> None:
    with pytest.raises(Unrendered) as caught:
        arguments(**fields)
    assert caught.value.why is why
