"""What the scheduler's side knows of a request that has not ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvengine.index import ChunkKey

if TYPE_CHECKING:
    from vllm.v1.request import Request


@dataclass(slots=True)
class Known:
    """The state of one request. Owner: the scheduler's side."""

    request: Request
    keys: list[ChunkKey] = field(default_factory=list)
    """Keys of its chunks, as far as they were needed."""
    device_tokens: int = 0
    """Tokens that the last match found on the device."""
    loaded_tokens: int = 0
    """Tokens that are being or have been loaded from host memory; 0 after a failed load."""
    computes: bool = False
    """Whether one of its loads took too long; no other load is tried then."""
    admitted: bool = False
    """Whether vLLM has allocated its first blocks."""
    considered: int = 0
    """Leading chunks that need not be offered to the planner again."""

    def chunks(self, count: int, *, blocks: int, salt: bytes) -> list[ChunkKey]:
        """Return the keys of the first ``count`` chunks of ``blocks`` blocks.

        A chunk's key is the salt and the hash of its last block, which covers all tokens before it.
        """
        keys, hashes = self.keys, self.request.block_hashes

        def key(number: int) -> ChunkKey:
            return ChunkKey(salt + hashes[(number + 1) * blocks - 1])

        # vLLM removes a streaming session's last token when more input comes, and appends others in its place.
        while keys and (len(keys) * blocks > len(hashes) or keys[-1] != key(len(keys) - 1)):
            keys.pop()
        keys += [key(number) for number in range(len(keys), count)]
        return keys[:count]
