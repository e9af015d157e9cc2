"""What the offload engine remembers about one request until it ends, without vLLM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kvengine.index import ChunkKey


@dataclass(slots=True)
class RequestState:
    """One request that has not ended.

    Owner: the scheduler's side, which creates it, passes it to the planner's methods, and drops it when the request
    ends. The planner writes the fields of the second group.
    """

    id: str
    keys: list[ChunkKey] = field(default_factory=list)
    """Keys of its chunks, as far as they were needed."""
    device_tokens: int = 0
    """Tokens that the last match found on the device."""
    loaded_tokens: int = 0
    """Tokens that are being or have been loaded from host memory; 0 after a failed load."""
    gave_up_loading: bool = False
    """Whether one of its loads took too long; no other load is tried then."""

    epoch: int | None = None
    """How often the planner had been cleared when vLLM allocated the request's first blocks, or allocated them again
    after a preemption; None before that. What was computed in an earlier epoch must not be stored."""
    considered: int = 0
    """Leading chunks that have been stored or need not be."""
    looked_up: tuple[int, int, ChunkKey | None] = (-1, 0, None)
    """The arguments of the last lookup: the index's generation, the number of chunks and the last chunk's key."""
    matched: int = 0
    """The result of that lookup, in chunks."""
    waits_since: float | None = None
    """When the request began to wait for another request's load; None while it does not wait."""
    gave_up_waiting: bool = False

    @property
    def has_begun(self) -> bool:
        """Whether vLLM has allocated the request's first blocks."""
        return self.epoch is not None

    def chunks(self, hashes: Sequence[bytes], count: int, *, blocks: int, salt: bytes) -> list[ChunkKey]:
        """Return the keys of the first ``count`` chunks of ``blocks`` blocks, which have these ``hashes``.

        A chunk's key is the salt and the hash of its last block, which covers all tokens before it.
        """
        keys = self.keys

        def key(number: int) -> ChunkKey:
            return ChunkKey(salt + hashes[(number + 1) * blocks - 1])

        # vLLM removes a streaming session's last token when more input comes, and appends others in its place.
        while keys and (len(keys) * blocks > len(hashes) or keys[-1] != key(len(keys) - 1)):
            keys.pop()
        keys += [key(number) for number in range(len(keys), count)]
        return keys[:count]
