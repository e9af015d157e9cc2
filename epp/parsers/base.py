"""The interface of parsers: they understand a request body as far as routing needs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Protocol, TypeVar

import msgspec

from scorers.base import Plugin, Prompt

P = TypeVar("P", bound=msgspec.Struct)


class Parsed(msgspec.Struct, frozen=True):
    """The parts of one request body that routing needs."""

    model: str
    """The model that the client named. Empty if the body was not read, or if its API has no such field."""
    target_model: str
    """The model in the request that goes to the engine."""
    prompts: tuple[Prompt, ...]
    """Empty if the request computes no KV (it only counts tokens, say), so that nothing can be shared or learned."""
    prompt_tokens: int
    """At least 1. Exact for token ids, otherwise an estimate (4 bytes per token)."""
    streaming: bool
    body: bytes | None = None
    """The body with the target model in it; None if the client's body may pass unchanged."""


UNREAD = Parsed(model="", target_model="", prompts=(), prompt_tokens=1, streaming=False)
"""The result for a body that passes unread: its endpoint is picked by load alone."""


HTTP, H2C = "http", "kubernetes.io/h2c"
"""HTTP/1.1, and HTTP/2 without TLS: the values of an InferencePool's ``appProtocol``."""


class Reader(Protocol):
    """The interface for reading request bodies."""

    def parse(self, path: str, body: bytes, target_model: str | None = None) -> Parsed:
        """Read ``body``, sent to ``path`` (no query), and rewrite its model if ``target_model`` is given.

        Raises: BadRequest, and nothing else, whatever the bytes are. It names the field, or the path that has no
        parser.
        """


class Parser(Plugin[P], ABC):
    """Reads the bodies of one family of APIs."""

    paths: ClassVar[tuple[str, ...]] = ()
    """The endings of the paths whose bodies it reads; if empty, it reads what no other parser reads."""
    protocols: ClassVar[frozenset[str]] = frozenset({HTTP, H2C})
    """How its requests may be sent to endpoints, in the words of an InferencePool's ``appProtocol``."""

    @abstractmethod
    def parse(self, path: str, body: bytes, target_model: str | None = None) -> Parsed:
        """Do as specified in ``Reader.parse``."""
