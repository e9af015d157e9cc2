"""The shape of the KV to store, according to vLLM's configuration.

KV that cannot be stored is refused at the start, by name.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm.v1.kv_cache_interface import FullAttentionSpec

from kvengine.errors import Unsupported
from kvengine.settings import Settings

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig

SALT_BYTES = 8


@dataclass(frozen=True, slots=True)
class Geometry:
    """The shape of the KV and its chunks; equal on the scheduler's side and in every worker."""

    block_tokens: int
    block_bytes: int
    """Bytes of one block in one worker."""
    chunk_blocks: int
    slots: int
    """The number of slots in each worker that the settings ask for."""
    workers: int
    """The number of workers of this instance."""
    workers_here: int
    """The largest number of workers that can share this machine."""
    prefix_caching: bool
    loads: bool
    """Whether ``kv_role`` lets this instance load KV from host memory."""
    stores: bool
    """Whether ``kv_role`` lets this instance store KV in host memory."""
    events: bool
    """Whether KV events are published."""
    salt: bytes
    """A digest of everything that determines a block's bytes and is not covered by the hash of its tokens."""

    @property
    def chunk_tokens(self) -> int:
        """Tokens of one chunk, which are moved together."""
        return self.block_tokens * self.chunk_blocks

    @property
    def slot_bytes(self) -> int:
        """Bytes of one slot in one worker."""
        return self.block_bytes * self.chunk_blocks


def geometry(vllm_config: VllmConfig, kv_cache_config: KVCacheConfig, settings: Settings) -> Geometry:
    """Return the geometry of this configuration. Raises: Unsupported naming what cannot be stored; SettingsError."""
    refuse(vllm_config, kv_cache_config)
    (group,) = kv_cache_config.kv_cache_groups
    spec = group.kv_cache_spec
    layers = sum(len(tensor.layers) for tensor in kv_cache_config.kv_cache_tensors)
    block_bytes = spec.page_size_bytes * layers
    chunk_blocks = settings.chunk_blocks(spec.block_size)
    parallel = vllm_config.parallel_config
    workers = parallel.world_size
    return Geometry(
        block_tokens=spec.block_size,
        block_bytes=block_bytes,
        chunk_blocks=chunk_blocks,
        slots=settings.slots(block_bytes=block_bytes, chunk_blocks=chunk_blocks, workers=workers),
        workers=workers,
        workers_here=workers * max(1, parallel.data_parallel_size_local),
        prefix_caching=bool(vllm_config.cache_config.enable_prefix_caching),
        loads=vllm_config.kv_transfer_config.is_kv_consumer,
        stores=vllm_config.kv_transfer_config.is_kv_producer,
        events=bool(vllm_config.kv_events_config and vllm_config.kv_events_config.enable_kv_cache_events),
        salt=salt(vllm_config, spec, layers),
    )


def refuse(vllm_config: VllmConfig, kv_cache_config: KVCacheConfig) -> None:
    """Refuse a configuration whose KV cannot be stored.

    Raises: Unsupported naming the first such feature and what to do.
    """
    groups = kv_cache_config.kv_cache_groups
    if len(groups) != 1:
        kinds = ", ".join(sorted({type(group.kv_cache_spec).__name__ for group in groups})) or "none"
        raise Unsupported(
            f"{len(groups)} groups of KV cache ({kinds}): only models that are full attention throughout are kept yet; "
            "start without kvengine"
        )
    spec = groups[0].kv_cache_spec
    if type(spec) is not FullAttentionSpec:
        raise Unsupported(f"{type(spec).__name__}: only full attention is kept yet; start without kvengine")
    for what in ("sliding_window", "attention_chunk_size"):
        if getattr(spec, what, None):
            raise Unsupported(f"{what} {getattr(spec, what)}: only full attention is kept yet; start without kvengine")
    hashed = vllm_config.cache_config.block_size
    if hashed != spec.block_size:  # a key would not identify all tokens of its chunk
        raise Unsupported(f"blocks of {spec.block_size} tokens whose hashes stand for {hashed}; start without kvengine")
    if vllm_config.speculative_config is not None:
        raise Unsupported("speculative decoding: drafts are not kept yet; start without one of the two")
    parallel = vllm_config.parallel_config
    for name in ("pipeline_parallel_size", "decode_context_parallel_size", "prefill_context_parallel_size"):
        if getattr(parallel, name, 1) != 1:
            raise Unsupported(f"{name} {getattr(parallel, name)}: only tensor parallelism is kept yet")


def salt(vllm_config: VllmConfig, spec: FullAttentionSpec, layers: int) -> bytes:
    """Return a digest of the model, its precision and the shape of its cache.

    A chunk's key consists of this salt and the hash of its tokens, which covers LoRA, images and the cache salt.
    """
    model, cache = vllm_config.model_config, vllm_config.cache_config
    parts = (
        model.model,
        model.revision,
        str(model.dtype),
        str(cache.cache_dtype),
        spec.block_size,
        spec.num_kv_heads,
        spec.head_size,
        str(spec.dtype),
        layers,
        vllm_config.parallel_config.tensor_parallel_size,
        cache.prefix_caching_hash_algo,
    )
    return hashlib.sha256("\0".join(map(str, parts)).encode()).digest()[:SALT_BYTES]
