"""What a parser answers: a request body, understood as far as routing needs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

import msgspec

from scorers.base import Plugin, Prompt

P = TypeVar("P", bound=msgspec.Struct)


class Parsed(msgspec.Struct, frozen=True):
    """One request body, understood."""

    model: str
    """The model the client asked for; empty only for a body that nobody read."""
    target_model: str
    """The model the engine is asked for."""
    prompts: tuple[Prompt, ...]
    prompt_tokens: int
    """At least 1. Exact for token ids, otherwise an estimate (4 bytes a token)."""
    streaming: bool
    body: bytes | None = None
    """The body that names the target model instead; None when the client's may pass as it is."""


class Parser(Plugin[P], ABC):
    """Reads the bodies of one family of APIs."""

    @abstractmethod
    def parse(self, path: str, body: bytes, target_model: str | None = None) -> Parsed:
        """Read ``body``, sent to ``path`` (no query), and rewrite its model when ``target_model`` is given.

        Raises: BadRequest, whatever the bytes are; it names the field. UnknownPath for a path that it does not read.
        """
