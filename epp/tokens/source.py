"""Who turns a request into token ids, and what comes of it.

The question and the act are two methods: ``now`` answers what needs no time, ``later`` all else, in a thread or over
the network.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol, TypeAlias

import msgspec


class Asked(msgspec.Struct, frozen=True):
    """A request to tokenize."""

    path: str
    """Where the client sent it, without its query."""
    body: bytes
    """As the engine gets it."""
    model: str
    """The model that the engine is asked for."""
    prompts: int
    """How many answers are wanted; of a request with more, those of the first."""


class Untold(Enum):
    """Why there are no token ids: the request goes on without."""

    NO_MODEL = "no_model"
    """No tokenizer is configured for its model."""
    UNSUPPORTED = "unsupported"
    """The source cannot know what the engine makes of such a request."""
    MEDIA = "media"
    """It holds images or the like, whose tokens only the engine knows."""
    REFUSED = "refused"
    """The chat template, or the server asked, refuses it."""
    TOO_LONG = "too_long"
    """More bytes than the source takes."""
    BUSY = "busy"
    """As many as may do so wait already."""
    TIMEOUT = "timeout"
    FAILED = "failed"
    """The source is broken, or cannot be reached."""
    CLOSED = "closed"
    """The source was replaced or shut down meanwhile."""

    __hash__ = object.__hash__


Ids: TypeAlias = tuple[bytes, ...]
"""Each prompt's token ids, little-endian uint32."""
Answer: TypeAlias = "Ids | Untold"
Done: TypeAlias = Callable[[Answer], None]
"""Called on the event loop, once, never inside ``later`` or ``cancel``."""


class Job(Protocol):
    """Tokens that somebody waits for."""

    def cancel(self) -> None:
        """Nobody waits any more; ``done`` is not called from now on. Does nothing once it was."""


class TokenSource(Protocol):
    """Owner: the event loop. Nothing here raises, whatever the request is."""

    def now(self, asked: Asked) -> Answer | None:
        """What can be said without letting others wait; None when it takes time: then ask for it ``later``."""

    def later(self, asked: Asked, done: Done) -> Job:
        """Tell ``done`` when it is known."""

    async def close(self) -> None:
        """Tell all who still wait that it is ``CLOSED``, and let go of threads and connections."""
