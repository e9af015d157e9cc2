"""A model that takes milliseconds and notices every wrong byte of KV.

Weights are random, with a spread that makes logits far apart: vLLM's own dummy weights are so small that a zeroed cache
changes nothing.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

HIDDEN, LAYERS, VOCABULARY, INNER = 128, 3, 1024, 256
HEADS, KV_HEADS, HEAD_SIZE = 4, 2, 32
MAX_TOKENS = 8192
SPREAD = 0.3


def make_model(folder: Path, seed: int = 0) -> Path:
    """Write a model to ``folder``; equal seeds make equal models."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_SIZE,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": MAX_TOKENS,
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

    def weights(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random) * SPREAD

    tensors = {
        "model.embed_tokens.weight": weights(VOCABULARY, HIDDEN),
        "lm_head.weight": weights(VOCABULARY, HIDDEN),
        "model.norm.weight": torch.ones(HIDDEN),
    }
    for number in range(LAYERS):
        layer = {
            "self_attn.q_proj": weights(HEADS * HEAD_SIZE, HIDDEN),
            "self_attn.k_proj": weights(KV_HEADS * HEAD_SIZE, HIDDEN),
            "self_attn.v_proj": weights(KV_HEADS * HEAD_SIZE, HIDDEN),
            "self_attn.o_proj": weights(HIDDEN, HEADS * HEAD_SIZE),
            "mlp.gate_proj": weights(INNER, HIDDEN),
            "mlp.up_proj": weights(INNER, HIDDEN),
            "mlp.down_proj": weights(HIDDEN, INNER),
            "input_layernorm": torch.ones(HIDDEN),
            "post_attention_layernorm": torch.ones(HIDDEN),
        }
        tensors |= {f"model.layers.{number}.{name}.weight": tensor for name, tensor in layer.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
