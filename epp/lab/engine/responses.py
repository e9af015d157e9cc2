"""OpenAI's responses: requests and answers. No response is stored, so ``previous_response_id`` is refused.

Source: OpenAI's API reference, "Responses" and "Streaming events".
"""

from __future__ import annotations

import time
from typing import Any

import msgspec
from typing_extensions import override

from epp.lab.engine.ask import DEFAULT_ANSWER_TOKENS, Ask, Message, conversation, positive
from epp.lab.engine.errors import bad_request
from epp.lab.engine.live import Answer, JobProgress
from epp.lab.engine.tokens import filler
from epp.lab.engine.writer import Shape, hits_of, sent_event


class Responses(msgspec.Struct, kw_only=True):
    """The body of ``POST /v1/responses``."""

    model: str
    input: str | list[Message]
    instructions: str | None = None
    max_output_tokens: int | None = None
    previous_response_id: str | None = None
    stream: bool = False
    tools: Any = None
    cache_salt: str | None = None


def ask_responses(request: Responses) -> Ask:
    """Return what a request requires of the engine. Raises: ApiError 400."""
    if request.previous_response_id is not None:
        raise bad_request("no response is stored here: send the whole conversation as input", "previous_response_id")
    messages = [Message("user", request.input)] if isinstance(request.input, str) else request.input
    wanted = request.max_output_tokens
    return Ask(
        model=request.model,
        prompts=[conversation(messages, request.instructions)],
        output_tokens=DEFAULT_ANSWER_TOKENS if wanted is None else positive(wanted, "max_output_tokens"),
        limited=wanted is not None,
        stream=request.stream,
        salt=request.cache_salt or "",
        extra=msgspec.json.encode(request.tools) if request.tools else b"",
    )


class ResponsesShape(Shape):
    """Writes the answer of ``/v1/responses``: one message with one text."""

    def __init__(self, answer_id: str, model: str, *, limited: bool) -> None:
        """``limited`` means that the client's limit ends the answer, so its status is incomplete."""
        self._id, self._model, self._limited = f"resp_{answer_id}", model, limited
        self._item_id = f"msg_{answer_id}"
        self._created = int(time.time())
        self._events = 0

    @override
    def whole(self, answer: Answer) -> bytes:
        return msgspec.json.encode(self._ended_response(answer))

    @override
    def begun(self, answer: Answer) -> bytes:
        started = self._response("in_progress", [])
        item = self._item("in_progress", [])
        return b"".join(
            (
                self._event("response.created", response=started),
                self._event("response.in_progress", response=started),
                self._event("response.output_item.added", output_index=0, item=item),
                self._text_event("response.content_part.added", part=_text("")),
            )
        )

    @override
    def piece(self, index: int, part: JobProgress, sent: int) -> bytes:
        return self._text_event("response.output_text.delta", delta=filler(sent, part.tokens), logprobs=[])

    @override
    def ended(self, answer: Answer) -> bytes:
        text = filler(0, answer.output_tokens)
        item = self._item(self._status, [_text(text)])
        return b"".join(
            (
                self._text_event("response.output_text.done", text=text, logprobs=[]),
                self._text_event("response.content_part.done", part=_text(text)),
                self._event("response.output_item.done", output_index=0, item=item),
                self._event(f"response.{self._status}", response=self._ended_response(answer)),
            )
        )

    @property
    def _status(self) -> str:
        return "incomplete" if self._limited else "completed"

    def _ended_response(self, answer: Answer) -> dict[str, object]:
        item = self._item(self._status, [_text(filler(0, answer.output_tokens))])
        return self._response(self._status, [item]) | {
            "incomplete_details": {"reason": "max_output_tokens"} if self._limited else None,
            "usage": {
                "input_tokens": answer.prompt_tokens,
                "input_tokens_details": {"cached_tokens": sum(hits_of(answer)), "cache_write_tokens": 0},
                "output_tokens": answer.output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": answer.prompt_tokens + answer.output_tokens,
            },
        }

    def _response(self, status: str, output: list[object]) -> dict[str, object]:
        return {
            "id": self._id, "object": "response", "created_at": self._created, "status": status, "model": self._model,
            "output": output, "error": None, "incomplete_details": None, "instructions": None, "metadata": {},
            "parallel_tool_calls": True, "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0,
            "usage": None,
        }  # fmt: skip

    def _item(self, status: str, content: list[object]) -> dict[str, object]:
        return {"id": self._item_id, "type": "message", "role": "assistant", "status": status, "content": content}

    def _text_event(self, kind: str, **fields: object) -> bytes:
        return self._event(kind, item_id=self._item_id, output_index=0, content_index=0, **fields)

    def _event(self, kind: str, **fields: object) -> bytes:
        number, self._events = self._events, self._events + 1
        return sent_event({"type": kind, "sequence_number": number, **fields}, kind)


def _text(text: str) -> dict[str, object]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
