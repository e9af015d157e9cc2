"""Every setting, with its unit, default and range."""

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
    """The settings, named as in ``kv_connector_extra_config``.

    In the environment, the same names are in capitals after ``KVENGINE_``. At most one of the three sizes may be set;
    the default is ``max_local_cpu_size`` 5.
    """

    max_local_cpu_size: float | None = None
    """Host memory of each worker. Units: GiB."""
    cpu_bytes_to_use: int | None = None
    """Host memory of the instance, all workers together. Units: bytes."""
    num_cpu_blocks: int | None = None
    """Host memory as a number of blocks of the engine's own size."""
    chunk_size: int = 256
    """Tokens that are moved together: a multiple of the engine's block size; a smaller number means one block."""
    local_cpu: bool = True
    """If false, host memory is only a buffer on the way to other tiers, and nothing is stored in it."""
    eviction_policy: PolicyName = "lru"
    """The policy that decides which idle chunk is evicted first."""
    store_after: int = 1
    """How often a chunk must be computed before it is stored; 1 stores it at once."""
    store_decode: bool = False
    """Whether generated tokens are stored, too, and not only prompts."""
    verify: bool = False
    """Keep a checksum of every chunk, and check it on every load: a chunk that changed in memory is computed again.
    Costs bandwidth."""

    def __post_init__(self) -> None:
        given = [name for name in SIZES if getattr(self, name) is not None]
        if len(given) > 1:
            raise SettingsError(f"{' and '.join(given)} both say how much host memory to use; give one of them")
        for name in RANGES:
            check(name, name, getattr(self, name))

    def slots(self, *, block_bytes: int, chunk_blocks: int, workers: int) -> int:
        """Return how many chunks of ``chunk_blocks`` blocks fit into the configured size, in each worker.

        ``block_bytes``: bytes of one block in one worker's KV cache.
        """
        if self.num_cpu_blocks is not None:
            return self.num_cpu_blocks // chunk_blocks
        if self.cpu_bytes_to_use is not None:
            size_bytes = self.cpu_bytes_to_use // workers
        else:
            size = DEFAULT_GIB if self.max_local_cpu_size is None else self.max_local_cpu_size
            size_bytes = int(size * GIB)
        return size_bytes // (block_bytes * chunk_blocks)

    def chunk_blocks(self, block_tokens: int) -> int:
        """Return how many of the engine's blocks form a chunk.

        Raises: SettingsError when ``chunk_size`` is larger than the block size and not a multiple of it.
        """
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
"""The minimum and the maximum of each number, and its unit."""


def allowed(name: str) -> str:
    """Return the range of a number in words."""
    low, high, unit = RANGES[name]
    return f"between {low:,} and {high:,} {unit}"


def check(name: str, written: str, value: float | None) -> None:
    """Check that ``value`` is None or in the range of ``name``.

    Raises: SettingsError, which names the setting as its source does: ``written``.
    """
    low, high, _ = RANGES[name]
    if value is not None and not low <= value <= high:  # also true for NaN
        raise SettingsError(f"{written}: {value} must lie {allowed(name)}")
