"""A chat request's messages and arguments, in the form in which vLLM passes them to a chat template.

Source: vLLM 0.32 and transformers 5.19, by reading and by comparison (``tests/vllm/test_rendered.py``): contents become
texts or lists of parts, arguments of tool calls become objects, and tools get all their fields in one order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from epp.tokens.model.answer import NoTokenIds

Message: TypeAlias = dict[str, Any]

TEXTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal", "thinking": "thinking"}
"""The field that holds the text of a part, by the part's type."""
CALL, FUNCTION = ("id", "function", "type"), ("arguments", "name")
"""The order of a tool call's keys; other keys come last."""
MAY_BE_NULL = ("text", "refusal")
OF_PARTS = frozenset(
    [
        "audio_embeds", "audio_url", "closed", "data", "file", "image_embeds", "image_pil", "image_url", "input_audio",
        "name", "prompt_cache_breakpoint", "refusal", "text", "thinking", "type", "uuid", "video_embeds", "video_url",
    ]
)  # fmt: skip
"""The fields of parts that vLLM knows. Of a text part, a template sees only the fields that are not in this set."""
MEDIA = ("image", "audio", "video", "prompt_embeds", "file")
BILLING = "x-anthropic-billing-header"
"""The start of a line that some agents put first, with a new value in each request. vLLM removes it."""
NOT_FOR_TEMPLATES = frozenset(
    [
        "chat_template", "tokenize", "tools", "messages", "conversation", "padding", "truncation", "max_length",
        "return_tensors", "return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs",
    ]
)  # fmt: skip
"""Keys of ``chat_template_kwargs`` that have another meaning for the functions they pass through."""
CONTINUE = "CONTINUE_FINAL_MESSAGE_TAG "
"""A mark that is rendered at the place where the last message is to be continued."""


class Unrendered(Exception):
    """Raised for a request that cannot be rendered here."""

    def __init__(self, why: NoTokenIds) -> None:
        super().__init__(why.value)
        self.why = why


class Chat(msgspec.Struct):
    """The fields that determine the prompt of a chat request."""

    messages: list[Message]
    tools: list[dict[str, Any]] | None = None
    documents: list[dict[str, str]] | None = None
    chat_template: Any = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    truncate_prompt_tokens: int | None = None
    kv_transfer_params: dict[str, Any] | None = None

    def arguments(self, defaults: Mapping[str, Any]) -> dict[str, Any]:
        """Return the template's arguments besides messages and tools; ``defaults`` are the engine's.

        Raises: Unrendered if vLLM refuses them, or treats them in a way that is not reproduced here.
        """
        given = self.chat_template_kwargs or {}
        if self.chat_template is not None or self.truncate_prompt_tokens is not None:
            raise Unrendered(NoTokenIds.UNSUPPORTED)
        if NOT_FOR_TEMPLATES & given.keys() or "prompt_token_ids" in (self.kv_transfer_params or ()):
            raise Unrendered(NoTokenIds.UNSUPPORTED)
        own: dict[str, Any] = {
            "add_generation_prompt": self.add_generation_prompt,
            "continue_final_message": self.continue_final_message,
            "documents": self.documents,
            "reasoning_effort": self.reasoning_effort,
        }
        if self.reasoning_effort is not None and "enable_thinking" not in given:
            own["enable_thinking"] = self.reasoning_effort != "none"
        merged = {**defaults, **given, **{key: value for key, value in own.items() if value not in (None, "auto")}}
        if merged["continue_final_message"] and merged["add_generation_prompt"]:
            raise Unrendered(NoTokenIds.REFUSED)
        return {"documents": None, **merged}


def described(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the tools as a template sees them. Raises: Unrendered if one is invalid."""
    found = []
    for tool in tools:
        function = tool.get("function")
        if tool.get("type", "function") != "function" or not isinstance(function, dict) or "name" not in function:
            raise Unrendered(NoTokenIds.REFUSED)
        deferred = function.get("defer_loading")
        deferred = tool.get("defer_loading") if deferred is None else deferred
        shown = {name: function.get(name) for name in ("name", "description", "parameters")}
        if function.get("strict") is not None:
            shown["strict"] = function["strict"]
        outer: dict[str, Any] = {"type": "function", "function": shown}
        if deferred is not None:
            shown["defer_loading"] = deferred
        if tool.get("defer_loading") is not None:
            outer["defer_loading"] = tool["defer_loading"]
        found.append(outer)
    return found


def conversation(messages: Sequence[Message], *, in_parts: bool) -> list[Message]:
    """Return the messages that a template loops over.

    ``in_parts``: the template takes contents as lists of parts, else as texts. Raises: Unrendered.
    """
    return [_message(message, in_parts=in_parts) for message in messages]


def _message(message: Message, *, in_parts: bool) -> Message:
    role = message.get("role")
    if not isinstance(role, str):
        raise Unrendered(NoTokenIds.REFUSED)
    parts = list(_parts(message.get("content"), role))
    shown: Message = {"role": role, "content": parts if in_parts else _joined(parts)}
    if role == "assistant":
        _add_assistant(shown, message)
    elif role == "tool":
        if "tool_call_id" in message:
            shown["tool_call_id"] = message["tool_call_id"]
        shown["content"] = "\n".join([part["text"] for part in parts]) if in_parts else _joined(parts)
    for name in ("name", "task"):
        if isinstance(message.get(name), str):
            shown[name] = message[name]
    if role == "developer":
        shown["tools"] = message.get("tools")
    return shown


def _joined(parts: list[dict[str, Any]]) -> str:
    return "\n".join([part["text"] for part in parts if part["text"]])


def _parts(content: object, role: str) -> Iterator[dict[str, Any]]:
    if content is None:
        return
    for part in [content] if isinstance(content, str) else _listed(content):
        shown = {"type": "text", "text": part} if isinstance(part, str) else _part(part)
        if shown is None:
            continue
        if role == "system" and shown["text"].startswith(BILLING) and _is_text(part):
            shown["text"] = shown["text"].partition("\n")[2]
            if not shown["text"]:
                continue
        yield shown


def _is_text(part: object) -> bool:
    return isinstance(part, str) or (isinstance(part, dict) and part.get("type") == "text")


def _listed(content: object) -> list[Any]:
    if not isinstance(content, list):
        raise Unrendered(NoTokenIds.REFUSED)
    return content


def _part(part: object) -> dict[str, Any] | None:
    """Return the part as a text part; None if it is left out. Raises: Unrendered."""
    if not isinstance(part, dict):
        raise Unrendered(NoTokenIds.REFUSED)
    kind = part.get("type")
    field = TEXTS.get(kind) if isinstance(kind, str) else None
    if field is None:
        media = [name for name in (kind, *part) if isinstance(name, str) and any(word in name for word in MEDIA)]
        raise Unrendered(NoTokenIds.MEDIA if media else NoTokenIds.UNSUPPORTED)
    text = part.get(field)
    if text is None and kind in MAY_BE_NULL:
        return None
    if not isinstance(text, str):
        raise Unrendered(NoTokenIds.REFUSED)
    return {"type": "text", "text": text, **{key: value for key, value in part.items() if key not in OF_PARTS}}


def _add_assistant(shown: Message, message: Message) -> None:
    calls = message.get("tool_calls")
    if calls is not None:
        made = [_call(call) for call in _listed(calls)]
        if made:
            shown["tool_calls"] = made
    reasoning = message.get("reasoning")
    if reasoning is None:
        reasoning = message.get("reasoning_content")
    if reasoning is not None:
        shown["reasoning"] = shown["reasoning_content"] = reasoning


def _call(call: object) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict) or call.get("type", "function") != "function":
        raise Unrendered(NoTokenIds.REFUSED)
    arguments = function.get("arguments")
    if isinstance(arguments, str) and arguments:
        try:
            arguments = json.loads(arguments)
        except ValueError:
            arguments = {}
    arguments = arguments if isinstance(arguments, dict) else {}
    return _ordered({**call, "function": _ordered({**function, "arguments": arguments}, FUNCTION)}, CALL)


def _ordered(given: dict[str, Any], first: Sequence[str]) -> dict[str, Any]:
    """Return the same keys and values, with the keys ``first`` in front, in that order."""
    return {**{key: given[key] for key in first if key in given}, **given}


def without_developers(messages: Sequence[Message]) -> list[Message]:
    """Return the messages for a template that does not know the role ``developer``.

    Such messages become system messages, and all system messages are merged into one in front.
    """
    named = [
        {key: value for key, value in message.items() if key != "tools"} | {"role": "system"}
        if message["role"] == "developer"
        else message
        for message in messages
    ]
    systems = [message for message in named if message["role"] == "system"]
    if len(systems) <= 1 and (not systems or named[0]["role"] == "system"):
        return named
    contents = [_as_text(message["content"]) for message in systems]
    merged = {"role": "system", "content": "\n\n".join([content for content in contents if content])}
    return [merged, *[message for message in named if message["role"] != "system"]]


def _as_text(content: str | list[dict[str, Any]]) -> str:
    return content if isinstance(content, str) else "\n".join([part["text"] for part in content])


def to_be_continued(messages: Sequence[Message]) -> tuple[list[Message], str]:
    """Return the messages with a mark at the end of the last content, and that content. Raises: Unrendered."""
    last = dict(messages[-1])
    content = last["content"]
    if isinstance(content, str):
        last["content"] = content + CONTINUE
        return [*messages[:-1], last], content
    if not content:
        raise Unrendered(NoTokenIds.REFUSED)
    text: str = content[-1]["text"]
    last["content"] = [*content[:-1], {**content[-1], "text": text + CONTINUE}]
    return [*messages[:-1], last], text


def cut_at_mark(written: str, content: str) -> str:
    """Return ``written`` up to the mark. Raises: Unrendered if the template has not kept the content."""
    bare = CONTINUE.strip()
    at = written.rfind(bare)
    if at < 0 or content.strip() not in written:
        raise Unrendered(NoTokenIds.REFUSED)
    return written[:at] if written.startswith(CONTINUE, at) else written[:at].rstrip()
