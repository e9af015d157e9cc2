"""The interface of what turns requests into token ids, and its results.

The question and the act are two methods: ``now`` returns what takes no time, ``later`` does everything else, in a
thread or over the network.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol, TypeAlias

import msgspec


class Asked(msgspec.Struct, frozen=True):
    """A request to tokenize."""

    path: str
    """The path of the client's request, without its query."""
    body: bytes
    """The request's body as the engine gets it."""
    model: str
    """The model that the engine gets the request for."""
    prompts: int
    """The number of prompts to tokenize; if the body has more prompts, the first ones count."""


class Untold(Enum):
    """The reason why there are no token ids; the request goes on without them."""

    NO_MODEL = "no_model"
    """No tokenizer is configured for the request's model."""
    UNSUPPORTED = "unsupported"
    """The source cannot know what the engine makes of such a request."""
    MEDIA = "media"
    """The request holds images or the like, whose tokens only the engine knows."""
    REFUSED = "refused"
    """The chat template or the remote server refuses the request."""
    TOO_LONG = "too_long"
    """The request has more bytes than the source takes."""
    BUSY = "busy"
    """The maximum number of requests is already waiting."""
    TIMEOUT = "timeout"
    FAILED = "failed"
    """The source is broken, or cannot be reached."""
    CLOSED = "closed"
    """The source was replaced or shut down in the meantime."""

    __hash__ = object.__hash__


Ids: TypeAlias = tuple[bytes, ...]
"""Each prompt's token ids, little-endian uint32."""
Answer: TypeAlias = "Ids | Untold"
Done: TypeAlias = Callable[[Answer], None]
"""The callback for an answer: called on the event loop, once, never inside ``later`` or ``cancel``."""


class Job(Protocol):
    """A tokenization under way, with a caller that waits for it."""

    def cancel(self) -> None:
        """Give up waiting: ``done`` is not called from now on. Does nothing once it was called."""


class TokenSource(Protocol):
    """The interface of all token sources. No method raises, whatever the request is. Owner: the event loop."""

    def now(self, asked: Asked) -> Answer | None:
        """Return what can be answered without delaying others; None if it takes time and needs ``later``."""

    def later(self, asked: Asked, done: Done) -> Job:
        """Tokenize, and call ``done`` with the answer."""

    async def close(self) -> None:
        """Finish every job with ``CLOSED``, and release threads and connections."""
