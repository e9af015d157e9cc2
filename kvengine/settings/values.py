"""Every setting, its unit, default and range."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from kvengine.errors import SettingsError

GIB = 1 << 30
DEFAULT_GIB = 5.0
MAX_CHUNK_TOKENS = 1 << 20
PolicyName = Literal["lru", "arc"]
POLICY_NAMES: tuple[PolicyName, ...] = get_args(PolicyName)


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """As in ``kv_connector_extra_config``; the same in capitals after ``KVENGINE_`` in the environment.

    Of the three sizes one may be given; none is ``max_local_cpu_size`` 5.
    """

    max_local_cpu_size: float | None = None
    """Host memory of each worker. Units: GiB."""
    cpu_bytes_to_use: int | None = None
    """Host memory of the instance, all workers together. Units: bytes."""
    num_cpu_blocks: int | None = None
    """Host memory as blocks of the engine's own size."""
    chunk_size: int = 256
    """Tokens that are moved together; a multiple of the engine's block size, or a part of it."""
    local_cpu: bool = True
    """False: host memory is a buffer on the way to other tiers only, and nothing is kept in it."""
    eviction_policy: PolicyName = "lru"
    store_after: int = 1
    """Store a chunk when it has been computed so many times; 1 stores at once."""
    store_decode: bool = False
    """Store what was generated, too, not prompts alone."""
    verify: bool = False
    """Keep a checksum of every chunk, and compute it anew on every load: what changed in memory is computed again, too.
    Costs bandwidth."""

    def __post_init__(self) -> None:
        given = [name for name in SIZES if getattr(self, name) is not None]
        if len(given) > 1:
            raise SettingsError(f"{' and '.join(given)} both say how much host memory to use; give one of them")
        for name in RANGES:
            check(name, name, getattr(self, name))

    def slots(self, *, block_bytes: int, chunk_blocks: int, workers: int) -> int:
        """How many chunks of ``chunk_blocks`` the asked size holds in each worker, of whose KV cache a block takes
        ``block_bytes``."""
        if self.num_cpu_blocks is not None:
            return self.num_cpu_blocks // chunk_blocks
        if self.cpu_bytes_to_use is not None:
            size_bytes = self.cpu_bytes_to_use // workers
        else:
            size = DEFAULT_GIB if self.max_local_cpu_size is None else self.max_local_cpu_size
            size_bytes = int(size * GIB)
        return size_bytes // (block_bytes * chunk_blocks)

    def chunk_blocks(self, block_tokens: int) -> int:
        """How many of the engine's blocks are a chunk. Raises: SettingsError when ``chunk_size`` is no multiple."""
        if self.chunk_size <= block_tokens:
            return 1
        if self.chunk_size % block_tokens:
            raise SettingsError(
                f"chunk_size: {self.chunk_size} is no multiple of the engine's block size, {block_tokens} tokens; "
                f"write {self.chunk_size // block_tokens * block_tokens} or start the engine with another --block-size"
            )
        return self.chunk_size // block_tokens


SIZES = ("max_local_cpu_size", "cpu_bytes_to_use", "num_cpu_blocks")


RANGES = {
    "max_local_cpu_size": (0, 1 << 20, "GiB per worker"),
    "cpu_bytes_to_use": (0, 1 << 50, "bytes per instance"),
    "num_cpu_blocks": (0, 1 << 40, "blocks"),
    "chunk_size": (1, MAX_CHUNK_TOKENS, "tokens"),
    "store_after": (1, 1 << 20, "times"),
}
"""The least and the most that a number may be, and its unit."""


def allowed(name: str) -> str:
    """The range of a number, in words."""
    low, high, unit = RANGES[name]
    return f"between {low:,} and {high:,} {unit}"


def check(name: str, written: str, value: float | None) -> None:
    """Raises: SettingsError unless ``value`` is in the range of ``name``, or None; it says how that was ``written``."""
    low, high, _ = RANGES[name]
    if value is not None and not low <= value <= high:  # a NaN is neither
        raise SettingsError(f"{written}: {value} must lie {allowed(name)}")
