"""A model that runs in milliseconds and generates other tokens after any wrong byte of KV.

Weights are random, with a spread that makes logits far apart: vLLM's own dummy weights are so small that a zeroed cache
changes nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

VOCABULARY = 1024


@dataclass(frozen=True, slots=True)
class Shape:
    """The dimensions of a Llama, tiny by default."""

    hidden: int = 128
    layers: int = 3
    inner: int = 256
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 32
    vocabulary: int = VOCABULARY
    max_tokens: int = 8192
    spread: float = 0.3
    """The data type of the weights."""


TINY = Shape()


def make_model(folder: Path, seed: int = 0, shape: Shape = TINY) -> Path:
    """Write a model to ``folder``; equal seeds result in equal models."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_size,
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": shape.max_tokens,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    (folder / "config.json").write_text(json.dumps(config))
    random = torch.Generator().manual_seed(seed)

    def weights(*sizes: int) -> torch.Tensor:
        return torch.randn(*sizes, generator=random) * shape.spread

    tensors = {
        "model.embed_tokens.weight": weights(shape.vocabulary, shape.hidden),
        "lm_head.weight": weights(shape.vocabulary, shape.hidden),
        "model.norm.weight": torch.ones(shape.hidden),
    }
    for number in range(shape.layers):
        layer = {
            "self_attn.q_proj": weights(shape.heads * shape.head_size, shape.hidden),
            "self_attn.k_proj": weights(shape.kv_heads * shape.head_size, shape.hidden),
            "self_attn.v_proj": weights(shape.kv_heads * shape.head_size, shape.hidden),
            "self_attn.o_proj": weights(shape.hidden, shape.heads * shape.head_size),
            "mlp.gate_proj": weights(shape.inner, shape.hidden),
            "mlp.up_proj": weights(shape.inner, shape.hidden),
            "mlp.down_proj": weights(shape.hidden, shape.inner),
            "input_layernorm": torch.ones(shape.hidden),
            "post_attention_layernorm": torch.ones(shape.hidden),
        }
        tensors |= {f"model.layers.{number}.{name}.weight": tensor for name, tensor in layer.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
