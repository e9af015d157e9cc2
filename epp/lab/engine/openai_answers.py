"""OpenAI's completions and chat: how their answers are written."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from typing_extensions import override

from epp.lab.engine.live import Answer, JobProgress
from epp.lab.engine.tokens import filler
from epp.lab.engine.writer import Shape, hits_of, sent_event


class PromptDetails(msgspec.Struct):
    """Where prompt tokens came from. ``gpu_tokens`` and ``cpu_tokens`` are the simulator's own addition."""

    cached_tokens: int
    gpu_tokens: int
    cpu_tokens: int


class UsageBody(msgspec.Struct):
    """The ``usage`` of an answer."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class Text(msgspec.Struct, omit_defaults=True):
    """A chat message, or a piece of one."""

    role: str | None = None
    content: str | None = None


class TextChoice(msgspec.Struct):
    """One completion, or a piece of one."""

    index: int
    text: str
    finish_reason: str | None
    logprobs: None = None


class MessageChoice(msgspec.Struct):
    """One choice of a chat answer."""

    index: int
    message: Text
    finish_reason: str | None
    logprobs: None = None


class DeltaChoice(msgspec.Struct):
    """A piece of a chat answer."""

    index: int
    delta: Text
    finish_reason: str | None
    logprobs: None = None


class TransferReport(msgspec.Struct):
    """kvengine's part of an answer."""

    prompt_tokens: int
    cached_tokens_by_tier: dict[str, int]


class AnswerBody(msgspec.Struct, omit_defaults=True):
    """A whole answer, or one event of a stream."""

    id: str
    object: str
    created: int
    model: str
    choices: list[Any]
    usage: UsageBody | None = None
    kv_transfer_params: TransferReport | None = None


class Completions(Shape):
    """Writes the answer of ``/v1/completions``."""

    whole_object = event_object = "text_completion"

    def __init__(self, answer_id: str, model: str, reason: str, *, include_usage: bool, report: bool) -> None:
        """``reason`` is the finish reason of the answer."""
        self._id, self._model, self._reason = answer_id, model, reason
        self._include_usage, self._report = include_usage, report
        self._created = int(time.time())

    @override
    def whole(self, answer: Answer) -> bytes:
        choices = [self._whole_choice(n, filler(0, part.tokens)) for n, part in enumerate(answer.parts)]
        body = self._body(self.whole_object, choices, usage_of(answer))
        first = answer.parts[0]
        if self._report and first.started is not None:  # for the first prompt only and never in a stream, as in vLLM
            hits = first.started.hits
            body.kv_transfer_params = TransferReport(first.job.prompt_tokens, {"gpu": hits.gpu, "cpu": hits.cpu})
        return msgspec.json.encode(body)

    @override
    def piece(self, index: int, part: JobProgress, sent: int) -> bytes:
        reason = self._reason if part.tokens == part.job.output_tokens else None
        return self._event(self._piece_choice(index, filler(sent, part.tokens), reason))

    @override
    def ended(self, answer: Answer) -> bytes:
        usage = sent_event(self._body(self.event_object, [], usage_of(answer))) if self._include_usage else b""
        return usage + b"data: [DONE]\n\n"

    def _whole_choice(self, index: int, text: str) -> object:
        return TextChoice(index, text, self._reason)

    def _piece_choice(self, index: int, text: str, reason: str | None) -> object:
        return TextChoice(index, text, reason)

    def _event(self, choice: object) -> bytes:
        return sent_event(self._body(self.event_object, [choice]))

    def _body(self, kind: str, choices: list[object], usage: UsageBody | None = None) -> AnswerBody:
        return AnswerBody(self._id, kind, self._created, self._model, choices, usage)


class Chats(Completions):
    """Writes the answer of ``/v1/chat/completions``; in a stream, the role comes before the first token."""

    whole_object, event_object = "chat.completion", "chat.completion.chunk"

    @override
    def piece(self, index: int, part: JobProgress, sent: int) -> bytes:
        role = b"" if sent else self._event(DeltaChoice(index, Text("assistant", ""), None))
        return role + super().piece(index, part, sent)

    @override
    def _whole_choice(self, index: int, text: str) -> object:
        return MessageChoice(index, Text("assistant", text), self._reason)

    @override
    def _piece_choice(self, index: int, text: str, reason: str | None) -> object:
        return DeltaChoice(index, Text(None, text), reason)


def usage_of(answer: Answer) -> UsageBody:
    """Return the usage of an answer so far."""
    gpu, cpu = hits_of(answer)
    prompt, output = answer.prompt_tokens, answer.output_tokens
    return UsageBody(prompt, output, prompt + output, PromptDetails(gpu + cpu, gpu, cpu))
