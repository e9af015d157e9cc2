"""What a parser answers: a request body, understood as far as routing needs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Protocol, TypeVar

import msgspec

from scorers.base import Plugin, Prompt

P = TypeVar("P", bound=msgspec.Struct)


class Parsed(msgspec.Struct, frozen=True):
    """One request body, understood."""

    model: str
    """The model the client asked for; empty where the body names none: nobody read it, or its API has no such field."""
    target_model: str
    """The model the engine is asked for."""
    prompts: tuple[Prompt, ...]
    """None when the request computes no KV (tokens are counted, say), so that nothing can be shared or learnt."""
    prompt_tokens: int
    """At least 1. Exact for token ids, otherwise an estimate (4 bytes a token)."""
    streaming: bool
    body: bytes | None = None
    """The body that names the target model instead; None when the client's may pass as it is."""


UNREAD = Parsed(model="", target_model="", prompts=(), prompt_tokens=1, streaming=False)
"""A body that passes unread: its endpoint is picked by load alone."""


class Reader(Protocol):
    """Whoever reads request bodies."""

    def parse(self, path: str, body: bytes, target_model: str | None = None) -> Parsed:
        """Read ``body``, sent to ``path`` (no query), and rewrite its model when ``target_model`` is given.

        Raises: BadRequest, whatever the bytes are; it names the field, or the path that it does not read.
        """


class Parser(Plugin[P], ABC):
    """Reads the bodies of one family of APIs."""

    paths: ClassVar[tuple[str, ...]] = ()
    """How the paths end whose bodies it reads; none of them: it reads what no other parser reads."""

    @abstractmethod
    def parse(self, path: str, body: bytes, target_model: str | None = None) -> Parsed:
        """As ``Reader`` says."""
