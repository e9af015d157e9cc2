"""Blocks of the device that a copy reads or writes, kept from other use until the copy has ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvengine.copiers.base import JobId

if TYPE_CHECKING:
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.kv_cache_utils import KVCacheBlock


class Borrowed:
    """The borrowed blocks, by job. Owner: the scheduler's side.

    vLLM counts the users of each block: a borrowed block is not free, whatever happens to its request.
    """

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._blocks: dict[JobId, list[KVCacheBlock]] = {}
        self._count = 0

    def keep(self, job: JobId, blocks: Sequence[int]) -> None:
        """Borrow ``blocks``, which are in use now, for the job until ``give_back``."""
        mine = [self._pool.blocks[block] for block in blocks]
        self._pool.touch(mine)
        self._blocks[job] = mine
        self._count += len(mine)

    def give_back(self, job: JobId) -> None:
        """Return the job's blocks after its copy has ended; does nothing for a job that borrowed none."""
        mine = self._blocks.pop(job, [])
        self._count -= len(mine)
        self._pool.free_blocks(reversed(mine))

    def __len__(self) -> int:
        """Return the number of borrowed blocks; a block that two jobs have borrowed counts twice."""
        return self._count
