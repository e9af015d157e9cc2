"""Blocks of the device that a copy reads or writes, kept from everybody else until it has ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvengine.copiers.base import JobId

if TYPE_CHECKING:
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.kv_cache_utils import KVCacheBlock


class Borrowed:
    """By job. vLLM counts who uses a block: one that is borrowed is not free, whatever becomes of its request.

    Owner: the scheduler's side.
    """

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._blocks: dict[JobId, list[KVCacheBlock]] = {}
        self._count = 0

    def keep(self, job: JobId, blocks: Sequence[int]) -> None:
        """Until ``give_back``. They are in use now."""
        mine = [self._pool.blocks[block] for block in blocks]
        self._pool.touch(mine)
        self._blocks[job] = mine
        self._count += len(mine)

    def give_back(self, job: JobId) -> None:
        """Its copy has ended; does nothing for one that has kept nothing."""
        mine = self._blocks.pop(job, [])
        self._count -= len(mine)
        self._pool.free_blocks(reversed(mine))

    def __len__(self) -> int:
        """How many blocks, one that two jobs keep counted twice."""
        return self._count
