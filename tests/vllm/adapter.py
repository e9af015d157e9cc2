"""LoRA adapters for the models of ``model.py``, strong enough that each generates other tokens."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from tests.vllm.model import TINY, Shape

RANK = 8


def make_adapter(folder: Path, seed: int, shape: Shape = TINY) -> Path:
    """Write an adapter to ``folder``; it changes queries and values, so that its KV differs from the base model's."""
    folder.mkdir()
    targets = {"q_proj": shape.heads * shape.head_size, "v_proj": shape.kv_heads * shape.head_size}
    config = {
        "peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "lora_dropout": 0.0, "bias": "none",
        "target_modules": list(targets), "task_type": "CAUSAL_LM", "base_model_name_or_path": "base",
    }  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(config))
    random = torch.Generator().manual_seed(seed)
    tensors = {}
    for layer in range(shape.layers):
        for name, outputs in targets.items():
            prefix = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            tensors[f"{prefix}.lora_A.weight"] = torch.randn(RANK, shape.hidden, generator=random) * shape.spread
            tensors[f"{prefix}.lora_B.weight"] = torch.randn(outputs, RANK, generator=random) * shape.spread
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder
