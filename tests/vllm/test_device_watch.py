"""The last use of the device's blocks, observed in vLLM's own block pool."""

from __future__ import annotations

from vllm.utils.hashing import sha256
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import BlockHash, KVCacheBlock, init_none_hash, make_block_hash_with_group_id

from kvengine.connector.device_watch import DeviceWatch


def cached(pool: BlockPool, name: bytes) -> KVCacheBlock:
    """Allocate a block that a lookup can find."""
    (block,) = pool.get_new_blocks(1)
    named = make_block_hash_with_group_id(BlockHash(name), 0)
    block.set_block_hash(named)
    pool.cached_block_hash_to_block.insert(named, block)
    return block


def test_a_block_that_another_request_still_uses_is_not_counted_as_freed() -> None:
    init_none_hash(sha256)
    pool = BlockPool(num_gpu_blocks=4, enable_caching=True, hash_block_size=16)
    now = [100.0]
    watch = DeviceWatch(pool, lambda: now[0])
    shared, own = cached(pool, b"shared"), cached(pool, b"own")
    pool.touch([shared])
    pool.free_blocks([own, shared])  # one of the two requests ends
    now[0] = 200.0
    pool.get_new_blocks(2)  # takes a free block, and then the block that was freed first
    assert (watch.horizon_s, watch.evicted) == (100.0, 1)
    assert watch.at_horizon == 0, "the shared one is in use, and is not what goes next"
    pool.free_blocks([shared])
    pool.get_new_blocks(1)
    assert (watch.horizon_s, watch.evicted) == (200.0, 2)
