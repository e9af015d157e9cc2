"""What comes of tokenizing a request: its token ids, or the reason why there are none."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias


class NoTokenIds(Enum):
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
Answer: TypeAlias = "Ids | NoTokenIds"
