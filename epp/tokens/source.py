"""The interface of what turns requests into token ids, and its results.

The question and the act are two methods: ``now`` returns what takes no time, ``later`` does everything else, in a
thread or over the network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from epp.tokens.model.answer import Answer


class TokenRequest(msgspec.Struct, frozen=True):
    """A request to tokenize."""

    path: str
    """The path of the client's request, without its query."""
    body: bytes
    """The request's body as the engine gets it."""
    model: str
    """The model that the engine gets the request for."""
    prompts: int
    """The number of prompts to tokenize; if the body has more prompts, the first ones count."""


Done: TypeAlias = Callable[[Answer], None]
"""The callback for an answer: called on the event loop, once, never inside ``later`` or ``cancel``."""


class Job(Protocol):
    """A tokenization under way, with a caller that waits for it."""

    def cancel(self) -> None:
        """Give up waiting: ``done`` is not called from now on. Does nothing once it was called."""


class TokenSource(Protocol):
    """The interface of all token sources. No method raises, whatever the request is. Owner: the event loop."""

    def now(self, request: TokenRequest) -> Answer | None:
        """Return what can be answered without delaying others; None if it takes time and needs ``later``."""

    def later(self, request: TokenRequest, done: Done) -> Job:
        """Tokenize, and call ``done`` with the answer."""

    async def close(self) -> None:
        """Finish every job with ``CLOSED``, and release threads and connections."""
