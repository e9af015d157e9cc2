"""Anthropic's messages, as vLLM serves them: requests and answers.

Source: Anthropic's API reference, "Messages", "Streaming messages", "Count message tokens".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from typing_extensions import override

from epp.lab.engine.ask import Ask, Content, Message, conversation, positive
from epp.lab.engine.live import Answer, JobProgress
from epp.lab.engine.tokens import filler
from epp.lab.engine.writer import Shape, hits_of, sent_event


class Counted(msgspec.Struct, kw_only=True):
    """The body of ``POST /v1/messages/count_tokens``."""

    model: str
    messages: list[Message]
    system: Content = None
    tools: Any = None

    @property
    def prompt(self) -> bytes:
        """Return the conversation as one prompt. Raises: ApiError 400 when there are no messages."""
        return conversation(self.messages, self.system)


class Messages(Counted, kw_only=True):
    """The body of ``POST /v1/messages``."""

    max_tokens: int
    stream: bool = False
    cache_salt: str | None = None


def ask_messages(request: Messages) -> Ask:
    """Return what a request requires of the engine. Raises: ApiError 400."""
    return Ask(
        model=request.model,
        prompts=[request.prompt],
        output_tokens=positive(request.max_tokens, "max_tokens"),
        stream=request.stream,
        salt=request.cache_salt or "",
        extra=msgspec.json.encode(request.tools) if request.tools else b"",
    )


class MessagesShape(Shape):
    """Writes the answer of ``/v1/messages``: one block of text."""

    def __init__(self, answer_id: str, model: str) -> None:
        self._id, self._model = answer_id, model

    @override
    def whole(self, answer: Answer) -> bytes:
        content = [{"type": "text", "text": filler(0, answer.output_tokens)}]
        return msgspec.json.encode(self._message(answer, content, "max_tokens"))

    @override
    def begun(self, answer: Answer) -> bytes:
        block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        start = {"type": "message_start", "message": self._message(answer, [], None)}
        return _event(start) + _event(block)

    @override
    def piece(self, index: int, part: JobProgress, sent: int) -> bytes:
        delta = {"type": "text_delta", "text": filler(sent, part.tokens)}
        return _event({"type": "content_block_delta", "index": index, "delta": delta})

    @override
    def ended(self, answer: Answer) -> bytes:
        delta = {"stop_reason": "max_tokens", "stop_sequence": None}
        return b"".join(
            (
                _event({"type": "content_block_stop", "index": 0}),
                _event({"type": "message_delta", "delta": delta, "usage": _usage(answer)}),
                _event({"type": "message_stop"}),
            )
        )

    def _message(self, answer: Answer, content: list[dict[str, str]], reason: str | None) -> dict[str, object]:
        return {
            "id": self._id, "type": "message", "role": "assistant", "model": self._model, "content": content,
            "stop_reason": reason, "stop_sequence": None, "usage": _usage(answer),
        }  # fmt: skip


def _event(body: Mapping[str, object]) -> bytes:
    return sent_event(body, str(body["type"]))


def _usage(answer: Answer) -> dict[str, int]:
    """Return the usage. As in the API, cached tokens are counted apart from ``input_tokens``."""
    cached = sum(hits_of(answer))
    return {
        "input_tokens": answer.prompt_tokens - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": answer.output_tokens,
    }
