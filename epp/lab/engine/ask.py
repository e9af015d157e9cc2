"""A request in any of the APIs, as the engine needs it: prompts, what else names their cached blocks, and a length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from epp.lab.engine.errors import bad_request
from epp.lab.engine.tokens import from_ids, render_chat

DEFAULT_ANSWER_TOKENS = 64
"""The length of an answer when the client of a conversational API sets no limit."""

Prompts = str | list[str | int | list[int]]
"""One text, several texts, the token ids of one prompt, or the token ids of several prompts."""

R = TypeVar("R", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a request requires of the engine. ``prompts`` are bytes, four to a token."""

    model: str
    prompts: list[bytes]
    output_tokens: int
    limited: bool = True
    """Whether the client's limit ends the answer; if not, the model ends it."""
    stream: bool = False
    salt: str = ""
    extra: bytes = b""
    """What else keeps the prompts' blocks apart from those of other requests."""

    def identity(self, adapter: str) -> bytes:
        """Return what names the cached blocks beside the prompt: one for all names of a model, and one per adapter."""
        return b"\0".join((adapter.encode(), self.salt.encode(), self.extra))


class ContentPart(msgspec.Struct):
    """A piece of a message; an image counts as the text of its JSON."""

    type: str = "text"
    text: str = ""
    image_url: msgspec.Raw = msgspec.Raw()
    source: msgspec.Raw = msgspec.Raw()

    @property
    def as_text(self) -> str:
        """The text, or the JSON that stands for an image."""
        return self.text or (bytes(self.image_url) or bytes(self.source)).decode()


Content = str | list[ContentPart] | None


class Message(msgspec.Struct):
    """One turn of a conversation."""

    role: str = "user"
    content: Content = None


def decode(body: bytes, kind: type[R]) -> R:
    """Decode ``body`` as a ``kind``. Raises: ApiError 400 when it is not such a request."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise bad_request(f"the request body is not valid: {error}") from error


def text_of(content: Content) -> str:
    """Return the content as one string."""
    return "".join(part.as_text for part in content) if isinstance(content, list) else content or ""


def conversation(messages: Sequence[Message], system: Content = None) -> bytes:
    """Return the prompt of a conversation. Raises: ApiError 400 when there are no messages."""
    if not messages:
        raise bad_request("messages must not be empty", "messages")
    turns = [(message.role, text_of(message.content)) for message in messages]
    return render_chat([("system", text_of(system)), *turns] if system else turns).encode()


def read_prompts(prompt: Prompts, param: str) -> list[bytes]:
    """Return each prompt as bytes. Raises: ApiError 400 for a mixture, for an empty list, or for ids out of range."""
    if isinstance(prompt, str):
        return [prompt.encode()]
    ids = [item for item in prompt if isinstance(item, int)]
    if not prompt or (ids and len(ids) < len(prompt)):
        raise bad_request(f"{param} must be a string, strings, token ids, or lists of token ids, and not empty", param)
    if ids:
        return [bytes_of(ids, param)]
    return [item.encode() if isinstance(item, str) else bytes_of(_ids(item), param) for item in prompt]


def bytes_of(ids: Sequence[int], param: str) -> bytes:
    """Return token ids as bytes. Raises: ApiError 400 for ids out of range."""
    try:
        return from_ids(ids)
    except OverflowError as error:
        raise bad_request(f"token ids must be 0 to 2^32 - 1: {error}", param) from error


def positive(value: int, param: str) -> int:
    """Return ``value`` unchanged. Raises: ApiError 400 when it is less than 1."""
    if value < 1:
        raise bad_request(f"{param} must be at least 1, got {value}", param)
    return value


def _ids(item: int | list[int]) -> Sequence[int]:
    return item if isinstance(item, list) else [item]
