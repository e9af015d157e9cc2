"""The capacity of each tier of a fleet."""

from __future__ import annotations

from epp.lab.size.fleet import Fleet
from epp.lab.size.memory import Range
from epp.lab.size.report import TierPart

GPU, CPU, STORAGE = "gpu", "cpu", "storage"


def tiers_of(fleet: Fleet) -> tuple[TierPart, ...]:
    """Return the tiers whose capacity is known, the fastest first."""
    return tuple(tier for tier in (_gpu_tier(fleet), _cpu_tier(fleet), _storage_tier(fleet)) if tier is not None)


def _gpu_tier(fleet: Fleet) -> TierPart | None:
    blocks = fleet.blocks
    if blocks is None:
        return None
    if fleet.layout is not None:
        tokens = Range(*(fleet.layout.tokens(n) for n in (blocks.low, blocks.best, blocks.high)))
        size_bytes = blocks.best * fleet.layout.block_bytes * fleet.ranks
    else:
        tokens = Range(*(n * fleet.block_tokens for n in (blocks.low, blocks.best, blocks.high)))
        size_bytes = round(tokens.best * (fleet.token_bytes or 0))
    return _tier(GPU, size_bytes, tokens, blocks.best, fleet.endpoints, fleet.blocks_source)


def _cpu_tier(fleet: Fleet) -> TierPart | None:
    if fleet.cpu_bytes is None:
        return None
    tokens = fleet.cpu_tokens
    if tokens is None:
        chunk_bytes = fleet.chunk_tokens * (fleet.token_bytes or 0) / fleet.ranks
        per_worker = fleet.cpu_bytes // fleet.ranks
        tokens = int(per_worker // chunk_bytes) * fleet.chunk_tokens if chunk_bytes else 0
    known = Range(tokens, tokens, tokens)
    return _tier(CPU, fleet.cpu_bytes, known, tokens // fleet.block_tokens, fleet.endpoints, fleet.cpu_source)


def _storage_tier(fleet: Fleet) -> TierPart | None:
    if fleet.storage_bytes is None or not fleet.token_bytes:
        return None
    tokens = int(fleet.storage_bytes // fleet.token_bytes)
    return TierPart(
        tier=STORAGE,
        bytes_per_endpoint=0,
        tokens_per_endpoint=0,
        low_tokens_per_endpoint=0,
        high_tokens_per_endpoint=0,
        blocks_per_endpoint=0,
        fleet_bytes=fleet.storage_bytes,
        fleet_tokens=tokens,
        source="--storage",
    )


def _tier(name: str, size_bytes: int, tokens: Range, blocks: int, endpoints: int, source: str) -> TierPart:
    return TierPart(
        tier=name,
        bytes_per_endpoint=size_bytes,
        tokens_per_endpoint=tokens.best,
        low_tokens_per_endpoint=tokens.low,
        high_tokens_per_endpoint=tokens.high,
        blocks_per_endpoint=blocks,
        fleet_bytes=size_bytes * endpoints,
        fleet_tokens=tokens.best * endpoints,
        source=source,
    )
