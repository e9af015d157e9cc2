"""OpenAI's completions and chat: the requests that a simulated endpoint understands.

Every sampling field that is not named here is accepted and ignored.
"""

from __future__ import annotations

from typing import Any

import msgspec

from epp.lab.engine.ask import DEFAULT_ANSWER_TOKENS, Ask, Message, Prompts, conversation, positive, read_prompts

COMPLETION_MAX_TOKENS = 16
"""The API's default for completions."""


class StreamOptions(msgspec.Struct):
    """The options that decide what a stream ends with."""

    include_usage: bool = False


class KvTransfer(msgspec.Struct):
    """The field that kvengine reads from a request; parameters of other connectors are ignored here."""

    kvengine_report: bool = False


class Common(msgspec.Struct, kw_only=True):
    """The fields that both kinds of request share."""

    model: str
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: int = 1
    max_tokens: int | None = None
    cache_salt: str | None = None
    kv_transfer_params: KvTransfer | None = None

    @property
    def include_usage(self) -> bool:
        """Whether a stream is to end with the usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def report(self) -> bool:
        """Whether the client wants the first prompt's cached tokens by tier, as kvengine reports them."""
        return self.kv_transfer_params is not None and self.kv_transfer_params.kvengine_report


class Completion(Common, kw_only=True):
    """The body of ``POST /v1/completions``."""

    prompt: Prompts


class Chat(Common, kw_only=True):
    """The body of ``POST /v1/chat/completions``."""

    messages: list[Message]
    max_completion_tokens: int | None = None
    tools: Any = None


def ask_completion(request: Completion) -> Ask:
    """Return what a completion request requires of the engine. Raises: ApiError 400."""
    wanted = COMPLETION_MAX_TOKENS if request.max_tokens is None else request.max_tokens
    times = range(positive(request.n, "n"))
    return Ask(
        model=request.model,
        prompts=[prompt for prompt in read_prompts(request.prompt, "prompt") for _ in times],
        output_tokens=positive(wanted, "max_tokens"),
        stream=request.stream,
        salt=request.cache_salt or "",
    )


def ask_chat(request: Chat) -> Ask:
    """Return what a chat request requires of the engine. Raises: ApiError 400."""
    wanted = request.max_completion_tokens if request.max_completion_tokens is not None else request.max_tokens
    return Ask(
        model=request.model,
        prompts=[conversation(request.messages)] * positive(request.n, "n"),
        output_tokens=DEFAULT_ANSWER_TOKENS if wanted is None else positive(wanted, "max_tokens"),
        limited=wanted is not None,
        stream=request.stream,
        salt=request.cache_salt or "",
        extra=msgspec.json.encode(request.tools) if request.tools else b"",
    )
