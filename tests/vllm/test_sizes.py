"""The block sizes of ``tierwise size`` equal those of the real vLLM, to the byte."""

from __future__ import annotations

from typing import Any

import pytest

from epp.catalog.model import Model
from epp.catalog.models import MODELS
from epp.lab.size.layout import layout_of

SHARED = [(name, ranks) for name, model in sorted(MODELS.items()) for ranks in (1, 2, 8, 16)
          if not model.heads % ranks and not (model.kv_heads % ranks and ranks % model.kv_heads)]  # fmt: skip


@pytest.mark.parametrize(("name", "ranks"), SHARED)
def test_a_models_blocks_are_grouped_and_as_large_as_vllm_makes_them(name: str, ranks: int) -> None:
    from vllm.v1.core import kv_cache_utils

    model = MODELS[name]
    specs = {f"layer.{n}": spec_of(model, ranks, windowed=n < model.window_layers) for n in range(model.layers)}
    if model.window_layers:
        groups = kv_cache_utils._get_kv_cache_groups_uniform_page_size(specs)
    else:
        groups = kv_cache_utils._get_kv_cache_groups_uniform_spec(specs)
    counted = [type(group.kv_cache_spec).__name__ for group in groups]
    block_bytes = max(
        len(group.layer_names) * kv_cache_utils._get_per_layer_spec(group, group.layer_names[0]).page_size_bytes
        for group in groups
    )
    layout = layout_of(model, 16, ranks)
    assert layout.block_bytes == block_bytes
    assert layout.window_groups == counted.count("SlidingWindowSpec")
    assert layout.full_groups == len(counted) - layout.window_groups


def spec_of(model: Model, ranks: int, *, windowed: bool) -> Any:
    """Return one layer as vLLM describes it on one of ``ranks``."""
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, MLAAttentionSpec, SlidingWindowSpec

    if model.latent_dim:
        return MLAAttentionSpec(block_size=16, num_kv_heads=1, head_size=model.latent_dim, dtype=torch.bfloat16)
    heads = max(1, model.kv_heads // ranks)
    common = {"block_size": 16, "num_kv_heads": heads, "head_size": model.head_dim, "dtype": torch.bfloat16}
    return SlidingWindowSpec(**common, sliding_window=model.window_tokens) if windowed else FullAttentionSpec(**common)
