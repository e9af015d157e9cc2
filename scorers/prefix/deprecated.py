"""The older form of the configuration, as in llm-d v0.4: a prefix scorer has a producer's parameters and its own index.

A scorer whose name contains a tier is configured in this form, too, even if it has none of the parameters.
"""

from __future__ import annotations

import msgspec

from scorers.base import Tier
from scorers.parameters import check_range
from scorers.prefix.parameters import DEFAULT_BLOCK_TOKENS, DEFAULT_LIMIT_TOKENS, ApproxPrefixParameters, tier_in
from scorers.prefix.producer import ApproxPrefixProducer

CHARACTERS_PER_TOKEN = 4


class OlderForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The parameters of a producer that a prefix scorer accepts. None is not configured."""

    tier: Tier | None = None
    auto_tune: bool | None = None
    lru_capacity_per_server: int | None = None
    block_size_tokens: int | None = None
    block_size: int | None = None
    """Block size in characters, 4 per token."""
    hash_block_size: int | None = None
    """Oldest name of ``block_size``."""
    max_prefix_blocks_to_match: int | None = None
    follow_horizon: bool | None = None

    def __post_init__(self) -> None:
        check_range("lruCapacityPerServer", self.lru_capacity_per_server, 1)
        check_range("blockSizeTokens", self.block_size_tokens, 1, 2**20)
        check_range("blockSize", self.block_size, 1, 2**22)
        check_range("hashBlockSize", self.hash_block_size, 1, 2**22)
        check_range("maxPrefixBlocksToMatch", self.max_prefix_blocks_to_match, 1)

    @property
    def block_tokens(self) -> int:
        """The block size. Units: tokens."""
        characters = self.block_size or self.hash_block_size or DEFAULT_BLOCK_TOKENS * CHARACTERS_PER_TOKEN
        return self.block_size_tokens or max(1, characters // CHARACTERS_PER_TOKEN)

    @property
    def is_older_form(self) -> bool:
        """Whether any parameter of a producer is configured here."""
        return any(getattr(self, name) is not None for name in OlderForm.__struct_fields__)

    def has_own_producer(self, name: str) -> bool:
        """Return whether the scorer of this ``name`` has a producer and an index of its own."""
        return self.is_older_form or tier_in(name) is not None

    def own_producer(self, name: str) -> ApproxPrefixProducer:
        """Return the producer of the scorer ``name``, with the same name."""
        blocks = self.max_prefix_blocks_to_match
        parameters = ApproxPrefixParameters(
            tier=self.tier,
            auto_tune=self.auto_tune is not False,
            lru_capacity_per_server=self.lru_capacity_per_server,
            block_size_tokens=self.block_tokens,
            max_prefix_tokens_to_match=DEFAULT_LIMIT_TOKENS if blocks is None else blocks * self.block_tokens,
            follow_horizon=self.follow_horizon is not False,
        )
        return ApproxPrefixProducer(parameters, name)
