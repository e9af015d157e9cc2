"""The parameters of the approximate producer."""

from __future__ import annotations

import msgspec

from scorers.base import Tier
from scorers.parameters import check_range

DEFAULT_CAPACITY_BLOCKS = 31_250
DEFAULT_BLOCK_TOKENS = 16
DEFAULT_LIMIT_TOKENS = 131_072
UNLIMITED = 2**62


class ApproxPrefixParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How much one instance records for each endpoint, and how much of a prompt it matches.

    Source: names and defaults of the Go picker's plugin of the same type; ``tier`` and the last two are ours.
    """

    tier: Tier | None = None
    """None takes the tier from the instance's name, if that contains ``cpu`` or ``storage``; otherwise gpu."""
    auto_tune: bool = True
    """Use the engine's capacity as soon as it reports one; in tiers other than gpu, only if none is configured."""
    lru_capacity_per_server: int | None = None
    """Number of blocks of ``block_size_tokens``; None is 31,250 for the GPU tier and unknown for the others."""
    block_size_tokens: int | None = None
    """The unit of ``lru_capacity_per_server`` and ``max_prefix_blocks_to_match`` only, 16 unless configured. The index
    hashes in blocks of its own size."""
    block_size: int = 0
    """Deprecated name of ``block_size_tokens``, which takes precedence; 0 is unset."""
    max_prefix_tokens_to_match: int = DEFAULT_LIMIT_TOKENS
    """Tokens of a prompt that are matched; 0 leaves it to ``max_prefix_blocks_to_match``."""
    max_prefix_blocks_to_match: int = 2048
    """Deprecated; 0 is unlimited."""
    follow_horizon: bool = True
    """Use the eviction horizon of an engine that reports it; False is always approximate. Ours."""
    max_share_by_fairness_id: float = 1.0
    """The share of an endpoint's capacity that one fairness id may hold. Ours. 1 is no bound, and the default: all
    clients that send no fairness id are one flow, which must not be bounded unless configured."""

    def __post_init__(self) -> None:
        check_range("maxShareByFairnessId", self.max_share_by_fairness_id, 0, 1)
        check_range("lruCapacityPerServer", self.lru_capacity_per_server, 1)
        check_range("blockSizeTokens", self.block_size_tokens, 1, 2**20)
        check_range("blockSize", self.block_size, 0, 2**20)
        check_range("maxPrefixTokensToMatch", self.max_prefix_tokens_to_match, 0)
        check_range("maxPrefixBlocksToMatch", self.max_prefix_blocks_to_match, 0)

    @property
    def block_tokens(self) -> int:
        """Tokens in one block of ``lru_capacity_per_server`` and ``max_prefix_blocks_to_match``."""
        return self.block_size_tokens or self.block_size or DEFAULT_BLOCK_TOKENS

    @property
    def limit_tokens(self) -> int:
        """The number of tokens of each prompt that are matched."""
        blocks = self.max_prefix_blocks_to_match * self.block_tokens
        return self.max_prefix_tokens_to_match or blocks or UNLIMITED


def tier_in(name: str) -> Tier | None:
    """Return the tier that an instance's name contains (gpu, cpu or storage, in upper or lower case); None if none."""
    lower = name.lower()
    return next((tier for tier in (Tier.CPU, Tier.STORAGE, Tier.GPU) if tier.value in lower), None)
