"""The OpenAI requests that a simulated endpoint understands, and the shapes of its answers and errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from epp.sim import tokens

DEFAULT_ANSWER_TOKENS = 64
"""How long a chat answer is when the client sets no limit."""
COMPLETION_MAX_TOKENS = 16
"""The API's default for completions."""


class ApiError(Exception):
    """An answer other than 200; ``kind`` is the word in the error's ``type``."""

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.kind, self.message, self.param = status, kind, message, param

    def body(self) -> bytes:
        """The JSON that vLLM's clients expect."""
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}
        return msgspec.json.encode({"error": error})


def bad_request(message: str, param: str | None = None) -> ApiError:
    """The answer to a request that cannot be understood or served."""
    return ApiError(400, "BadRequestError", message, param)


class StreamOptions(msgspec.Struct):
    """What a stream ends with."""

    include_usage: bool = False


class KvTransfer(msgspec.Struct):
    """What kvengine reads of a request; another connector's parameters mean nothing here."""

    kvengine_report: bool = False


class Common(msgspec.Struct, kw_only=True):
    """The fields that both kinds of request share; every other sampling field is accepted and means nothing here."""

    model: str
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: int = 1
    max_tokens: int | None = None
    cache_salt: str | None = None
    kv_transfer_params: KvTransfer | None = None


class Completion(Common, kw_only=True):
    """``POST /v1/completions``."""

    prompt: str | list[str | int | list[int]]


class ContentPart(msgspec.Struct):
    """A piece of a message; an image counts as its URL's text."""

    type: str = "text"
    text: str = ""
    image_url: Any = None


class Message(msgspec.Struct):
    """A turn of a chat."""

    role: str
    content: str | list[ContentPart] | None = None

    @property
    def text(self) -> str:
        """The content as one string."""
        if isinstance(self.content, list):
            return "".join(part.text or msgspec.json.encode(part.image_url).decode() for part in self.content)
        return self.content or ""


class Chat(Common, kw_only=True):
    """``POST /v1/chat/completions``."""

    messages: list[Message]
    max_completion_tokens: int | None = None
    tools: Any = None


@dataclass(frozen=True, slots=True)
class Ask:
    """A request as the engine needs it. ``prompts`` are bytes, four to a token."""

    prompts: list[bytes]
    identity: bytes
    salt: str
    output_tokens: int
    finish_reason: str
    stream: bool
    include_usage: bool
    chat: bool
    report: bool
    """Whether the first prompt's cached tokens by tier are wanted, as kvengine tells them."""


R = TypeVar("R", bound=Common)


def read(body: bytes, kind: type[R], model: str) -> R:
    """Decode ``body``. Raises: ApiError 400 when it is not such a request, 404 when it wants another model."""
    try:
        request = msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise bad_request(f"the request body is not valid: {error}") from error
    if request.model != model:
        raise ApiError(404, "NotFoundError", f"The model `{request.model}` does not exist; it is `{model}`.", "model")
    if request.n < 1:
        raise bad_request(f"n must be at least 1, got {request.n}", "n")
    return request


def ask_completion(request: Completion) -> Ask:
    """What a completion request asks the engine for."""
    prompts = [prompt for prompt in completion_prompts(request.prompt) for _ in range(request.n)]
    wanted = request.max_tokens
    return _ask(request, prompts, b"", COMPLETION_MAX_TOKENS if wanted is None else wanted, "length", chat=False)


def ask_chat(request: Chat) -> Ask:
    """What a chat request asks the engine for."""
    if not request.messages:
        raise bad_request("messages must not be empty", "messages")
    rendered = tokens.render_chat([(message.role, message.text) for message in request.messages]).encode()
    tools = msgspec.json.encode(request.tools) if request.tools else b""
    wanted = request.max_completion_tokens if request.max_completion_tokens is not None else request.max_tokens
    if wanted is None:
        return _ask(request, [rendered] * request.n, tools, DEFAULT_ANSWER_TOKENS, "stop", chat=True)
    return _ask(request, [rendered] * request.n, tools, wanted, "length", chat=True)


def completion_prompts(prompt: str | list[str | int | list[int]]) -> list[bytes]:
    """Each prompt as bytes: one string, several, the ids of one, or the ids of several."""
    if isinstance(prompt, str):
        return [prompt.encode()]
    ids = [item for item in prompt if isinstance(item, int)]
    if not prompt or (ids and len(ids) < len(prompt)):
        raise bad_request("prompt must be a string, strings, token ids, or lists of token ids, and not empty", "prompt")
    try:
        if ids:
            return [tokens.from_ids(ids)]
        return [item.encode() if isinstance(item, str) else tokens.from_ids(_ids(item)) for item in prompt]
    except OverflowError as error:
        raise bad_request(f"token ids must be 0 to 2^32 - 1: {error}", "prompt") from error


def _ids(item: int | list[int]) -> Sequence[int]:
    return item if isinstance(item, list) else [item]


def _ask(request: Common, prompts: list[bytes], tools: bytes, output: int, reason: str, *, chat: bool) -> Ask:
    if output < 1:
        raise bad_request(f"max_tokens must be at least 1, got {output}", "max_tokens")
    options = request.stream_options or StreamOptions()
    report = request.kv_transfer_params is not None and request.kv_transfer_params.kvengine_report
    identity = b"\0".join((request.model.encode(), (request.cache_salt or "").encode(), tools))
    return Ask(
        prompts, identity, request.cache_salt or "", output, reason, request.stream, options.include_usage, chat, report
    )


# Answers


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
    """A chat message or a piece of one."""

    role: str | None = None
    content: str | None = None


class TextChoice(msgspec.Struct):
    """One completion, or a piece of one."""

    index: int
    text: str
    finish_reason: str | None
    logprobs: None = None


class MessageChoice(msgspec.Struct):
    """One chat answer."""

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


class Report(msgspec.Struct):
    """kvengine's part of an answer."""

    prompt_tokens: int
    cached_tokens_by_tier: dict[str, int]


class AnswerBody(msgspec.Struct, omit_defaults=True):
    """A whole answer, or one event of a stream."""

    id: str
    object: str
    created: int
    model: str
    choices: list[TextChoice] | list[MessageChoice] | list[DeltaChoice]
    usage: UsageBody | None = None
    kv_transfer_params: Report | None = None
