"""Prompts as the engines' events identify them: by token ids, and without the names of base models."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from scorers.base import Prompt, Request
from scorers.precise.index import BYTES_PER_TOKEN

_OF_TOKENS = b"\x06\0\0\0tokens"
"""The beginning of the identity of a prompt that was sent as token ids."""


def usable_tokens(prompt: Prompt) -> int:
    """Return how many tokens of a prompt of token ids may be a cache hit."""
    return max(0, len(prompt.data) // BYTES_PER_TOKEN - 1)


def token_prompts(request: Request) -> Sequence[Prompt] | None:
    """Return the request's prompts as token ids; None if they are unknown."""
    if request.tokens is not None:
        return request.tokens
    sent = request.prompts
    return sent if sent and all(prompt.identity.startswith(_OF_TOKENS) for prompt in sent) else None


@lru_cache(maxsize=4096)
def renamed(identity: bytes, adapters: frozenset[str] = frozenset()) -> bytes:
    """Return an identity of token ids without its model, unless the model is one of ``adapters``.

    An identity is a kind, a model and a salt, each after its length in four bytes.
    """
    begin = 4 + int.from_bytes(identity[:4], "little")
    end = begin + 4 + int.from_bytes(identity[begin : begin + 4], "little")
    if identity[begin + 4 : end].decode(errors="surrogatepass") in adapters:
        return identity
    return identity[:begin] + bytes(4) + identity[end:]
