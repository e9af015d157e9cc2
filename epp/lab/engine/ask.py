"""A request in any of the APIs, as the engine needs it: prompts, what else names their cached blocks, and a length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from epp.lab.engine.errors import bad_request
from epp.lab.engine.tokens import from_ids, render_chat

DEFAULT_ANSWER_TOKENS = 64
"""How long an answer is when the client of a conversational API sets no limit."""

Prompts = str | list[str | int | list[int]]
"""A text, texts, a prompt's token ids, or several prompts' token ids."""

R = TypeVar("R", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What the engine is asked for. ``prompts`` are bytes, four to a token."""

    model: str
    prompts: list[bytes]
    output_tokens: int
    limited: bool = True
    """Whether the client's limit ends the answer, and not the model."""
    stream: bool = False
    salt: str = ""
    extra: bytes = b""
    """What else keeps the prompts' blocks apart from those of other requests."""

    def identity(self, adapter: str) -> bytes:
        """What names the cached blocks beside the prompt: an adapter has its own, a model's names share theirs."""
        return b"\0".join((adapter.encode(), self.salt.encode(), self.extra))


class ContentPart(msgspec.Struct):
    """A piece of a message; an image counts as its JSON's text."""

    type: str = "text"
    text: str = ""
    image_url: msgspec.Raw = msgspec.Raw()
    source: msgspec.Raw = msgspec.Raw()

    @property
    def as_text(self) -> str:
        """The text, or what stands for it."""
        return self.text or (bytes(self.image_url) or bytes(self.source)).decode()


Content = str | list[ContentPart] | None


class Message(msgspec.Struct):
    """A turn of a conversation."""

    role: str = "user"
    content: Content = None


def decode(body: bytes, kind: type[R]) -> R:
    """Read ``body``. Raises: ApiError 400 when it is not such a request."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise bad_request(f"the request body is not valid: {error}") from error


def text_of(content: Content) -> str:
    """Content as one string."""
    return "".join(part.as_text for part in content) if isinstance(content, list) else content or ""


def conversation(messages: Sequence[Message], system: Content = None) -> bytes:
    """The prompt of a conversation. Raises: ApiError 400 when nobody has said anything."""
    if not messages:
        raise bad_request("messages must not be empty", "messages")
    turns = [(message.role, text_of(message.content)) for message in messages]
    return render_chat([("system", text_of(system)), *turns] if system else turns).encode()


def read_prompts(prompt: Prompts, param: str) -> list[bytes]:
    """Each prompt as bytes. Raises: ApiError 400 for a mixture, for nothing, or for ids that do not exist."""
    if isinstance(prompt, str):
        return [prompt.encode()]
    ids = [item for item in prompt if isinstance(item, int)]
    if not prompt or (ids and len(ids) < len(prompt)):
        raise bad_request(f"{param} must be a string, strings, token ids, or lists of token ids, and not empty", param)
    if ids:
        return [bytes_of(ids, param)]
    return [item.encode() if isinstance(item, str) else bytes_of(_ids(item), param) for item in prompt]


def bytes_of(ids: Sequence[int], param: str) -> bytes:
    """Token ids as bytes. Raises: ApiError 400 for ids that do not exist."""
    try:
        return from_ids(ids)
    except OverflowError as error:
        raise bad_request(f"token ids must be 0 to 2^32 - 1: {error}", param) from error


def positive(value: int, param: str) -> int:
    """``value``. Raises: ApiError 400 when it is less than 1."""
    if value < 1:
        raise bad_request(f"{param} must be at least 1, got {value}", param)
    return value


def _ids(item: int | list[int]) -> Sequence[int]:
    return item if isinstance(item, list) else [item]
