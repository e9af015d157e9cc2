"""Divides the tokens of vLLM's requests into chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvengine.connector.geometry import Geometry
from kvengine.index import ChunkKey
from kvengine.request_state import RequestState

if TYPE_CHECKING:
    from vllm.v1.request import Request


class Chunking:
    """The chunks of any request. Every count is of whole chunks, from the request's start on."""

    def __init__(self, shape: Geometry, *, decoded: bool) -> None:
        """``decoded``: whether generated tokens are stored, too."""
        self._shape = shape
        self._decoded = decoded

    def keys(self, state: RequestState, request: Request, count: int) -> list[ChunkKey]:
        """Return the keys of the first ``count`` chunks; ``state`` keeps them for the next call."""
        return state.chunks(request.block_hashes, count, blocks=self._shape.chunk_blocks, salt=self._shape.salt)

    def loadable(self, request: Request) -> int:
        """Return how many chunks may be loaded: one token must be left to compute, to sample the next one from."""
        return int(request.num_tokens - 1) // self._shape.chunk_tokens

    def storable(self, request: Request, computed_tokens: int) -> int:
        """Return how many chunks are computed and may be stored."""
        end = computed_tokens if self._decoded else min(computed_tokens, request.num_prompt_tokens)
        return self._hashed(request, end)

    def prompt(self, request: Request) -> int:
        """Return how many chunks the prompt has."""
        return self._hashed(request, request.num_prompt_tokens)

    def _hashed(self, request: Request, tokens: int) -> int:
        blocks = min(tokens // self._shape.block_tokens, len(request.block_hashes))
        return blocks // self._shape.chunk_blocks
