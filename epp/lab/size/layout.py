"""How vLLM lays KV out in blocks, where layers of several kinds share one pool.

Layers of one kind are cut into groups of equal size, and a block belongs to one group: it holds ``block_tokens`` tokens
of that group's layers. So a sequence takes a block of every group for the same tokens.

Source: vLLM 0.32, ``v1/core/kv_cache_utils.py`` (grouping), ``v1/kv_cache_interface.py`` (bytes of a page).
"""

from __future__ import annotations

from dataclasses import dataclass

from epp.catalog.model import Model

_LITTLE_MORE = 1.5
"""If the ratio of the layers of both kinds is below this, each kind is one group, and the smaller one is padded."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The block layout of one rank."""

    block_tokens: int
    block_bytes: int
    """One block on one rank, including padding."""
    full_groups: int
    """Groups of layers with full attention, whose blocks stay needed."""
    window_groups: int
    """Groups of layers with a window: a prefix is found by its last blocks alone."""

    def tokens(self, blocks: int) -> int:
        """Return the tokens of prefixes that fit into ``blocks`` while every group keeps all of its blocks."""
        return blocks // (self.full_groups + self.window_groups) * self.block_tokens

    def most_tokens(self, blocks: int) -> int:
        """Return the most tokens that fit into ``blocks``, once the blocks behind windows have been freed."""
        return blocks // (self.full_groups or self.window_groups) * self.block_tokens


def layout_of(model: Model, block_tokens: int, ranks: int = 1, dtype_bytes: int | None = None) -> Layout:
    """Return the layout of ``model`` with blocks of ``block_tokens`` over ``ranks``."""
    counts = [count for count in (model.full_layers, model.window_layers) if count]
    size = min(counts)
    if max(counts) < size * _LITTLE_MORE:
        size = max(counts)
    page = block_tokens * model.kv_bytes_per_token_and_layer(dtype_bytes, ranks) // ranks
    return Layout(block_tokens, size * page, -(-model.full_layers // size), -(-model.window_layers // size))
