"""When the device's blocks were last used, and how far eviction has come there.

vLLM's block pool keeps its free blocks in the order in which they were freed, but no times. Every block passes through
its ``free_blocks`` method and its metrics collector, so this module hooks into both.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.kv_cache_utils import KVCacheBlock


class DeviceWatch:
    """Replaces the block pool's metrics collector, and forwards every call to the original one.

    Owner: the engine's thread.
    """

    def __init__(self, pool: BlockPool, clock: Callable[[], float] = time.time) -> None:
        self.horizon_s = 0.0
        """The latest last use of any cached block that has been dropped, in Unix time; never decreases, 0 before the
        first one."""
        self.evicted = 0
        """Evicted blocks whose KV a lookup could have found."""
        self._pool = pool
        self._clock = clock
        self._used = array("d", bytes(8 * len(pool.blocks)))  # 0 for a block that is in use or not cached
        self._used_at_once = np.frombuffer(self._used)
        self._before: Any = pool.metrics_collector
        self._free = pool.free_blocks
        pool.metrics_collector = self  # the methods that the pool calls are below
        pool.free_blocks = self._freed

    @property
    def capacity(self) -> int:
        """Blocks that can be cached: all but the pool's first one, which is never allocated to a request."""
        return len(self._pool.blocks) - 1

    @property
    def resident(self) -> int:
        """Cached blocks: a lookup of their tokens finds them."""
        return len(self._pool.cached_block_hash_to_block)

    @property
    def pinned(self) -> int:
        """Blocks that a request or a copy uses now."""
        return self.capacity - int(self._pool.get_num_free_blocks())

    @property
    def at_horizon(self) -> int:
        """Blocks that were last used at the horizon and are still cached."""
        return int(np.count_nonzero(self._used_at_once == self.horizon_s)) if self.horizon_s else 0

    def _freed(self, ordered_blocks: Iterable[KVCacheBlock]) -> None:
        blocks = list(ordered_blocks)
        now, used = self._clock(), self._used
        self._free(blocks)
        for block in blocks:  # a block with other users is not idle
            used[block.block_id] = now if block.block_hash is not None and not block.ref_cnt else 0.0

    # The interface of a metrics collector.

    @property
    def sample_rate(self) -> float:
        """The original collector's sample rate."""
        return float(getattr(self._before, "sample_rate", 1.0))

    def on_block_allocated(self, block: KVCacheBlock) -> None:
        """Note that a block was allocated to a request."""
        if self._before is not None:
            self._before.on_block_allocated(block)

    def on_block_accessed(self, block: KVCacheBlock) -> None:
        """Note that a lookup found a block, which is in use now."""
        self._used[block.block_id] = 0.0
        if self._before is not None:
            self._before.on_block_accessed(block)

    def on_block_evicted(self, block: KVCacheBlock) -> None:
        """Note that a free block is about to be overwritten."""
        if block.block_hash is not None:
            self.horizon_s = max(self.horizon_s, self._used[block.block_id])
            self._used[block.block_id] = 0.0
            self.evicted += 1
        if self._before is not None:
            self._before.on_block_evicted(block)

    def reset(self) -> None:
        """Note that all cached blocks are gone."""
        self.horizon_s = max(self.horizon_s, float(self._used_at_once.max()))
        self._used_at_once[:] = 0.0
        if self._before is not None:
            self._before.reset()

    def drain_events(self) -> list[Any]:
        """Return the events of the original collector."""
        return list(self._before.drain_events()) if self._before is not None else []
