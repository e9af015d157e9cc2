"""What the scheduler's side knows of a request that has not ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvengine.index import ChunkKey

if TYPE_CHECKING:
    from vllm.v1.request import Request


@dataclass(slots=True)
class Known:
    """One request. Owner: the scheduler's side."""

    request: Request
    keys: list[ChunkKey] = field(default_factory=list)
    """Of its chunks, as far as anybody asked."""
    device_tokens: int = 0
    """Found on the device when it was last matched."""
    loaded_tokens: int = 0
    computes: bool = False
    """A load of its own took too long: no other one is tried."""
    admitted: bool = False
    considered: int = 0
    """Chunks that need no further look."""

    def chunks(self, count: int, *, blocks: int, salt: bytes) -> list[ChunkKey]:
        """The keys of the first ``count`` chunks of ``blocks`` blocks. A chunk's is its last block's hash, which stands
        for all before."""
        keys, hashes = self.keys, self.request.block_hashes

        def key(number: int) -> ChunkKey:
            return ChunkKey(salt + hashes[(number + 1) * blocks - 1])

        # vLLM takes the last token of a streaming session back when more input comes: others follow in its place.
        while keys and (len(keys) * blocks > len(hashes) or keys[-1] != key(len(keys) - 1)):
            keys.pop()
        keys += [key(number) for number in range(len(keys), count)]
        return keys[:count]
