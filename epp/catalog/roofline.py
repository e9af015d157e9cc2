"""Estimates how long prefill and loading take, from the shapes alone.

A prompt's linear layers cost its tokens times the active parameters. Attention is added per pair of a token and an
earlier token in layers of full attention, and per token in layers with a window. Each part reaches a constant share of
the peak.

Sources: linear layers of a dense model at 60 % of peak: Qwen3-32B on 2 H100 then computes 18,100 tokens/s; the llm-d
project's recipe and fit for it give 15,928 and 20,480. With experts 40 %: gpt-oss-120b on one H100 computes 39,065
tokens/s by the same recipe. Attention at 55 %: a guess. Memory: 85 % for weights, 80 % for KV: a guess.
"""

from __future__ import annotations

from dataclasses import dataclass

from epp.catalog.gpu import Gpu
from epp.catalog.model import Model, Quantization

DENSE_EFFICIENCY, EXPERTS_EFFICIENCY, ATTENTION_EFFICIENCY = 0.60, 0.40, 0.55
WEIGHTS_EFFICIENCY, KV_EFFICIENCY = 0.85, 0.80


@dataclass(frozen=True, slots=True)
class Roofline:
    """The times of a model on one or several GPUs, in seconds."""

    token_s: float
    """Linear layers and windowed attention, per computed token."""
    pair_s: float
    """Full attention, per pair of a token and an earlier token in prefill."""
    weights_s: float
    """Reading the weights once, which is the minimum time of a step."""
    decode_context_s: float
    """Reading the KV of one token of context, in layers of full attention."""
    load_s: float
    """Loading the KV of one token, in all layers, from host memory."""

    def prefill_s(self, tokens: int, cached: int = 0) -> float:
        """Return the time to compute ``tokens`` tokens of a prompt behind ``cached`` ones."""
        pairs = tokens * (cached + tokens / 2)
        return max(self.weights_s if tokens else 0.0, tokens * self.token_s) + pairs * self.pair_s


def roofline(model: Model, gpu: Gpu, ranks: int = 1, kv_dtype_bytes: int | None = None) -> Roofline:
    """Return the times of ``model`` on ``ranks`` GPUs of one kind, tensor parallel.

    Communication between ranks is not included.
    """
    shared = ranks * gpu.sustained
    peak = (gpu.fp8_flops if model.quantization is Quantization.FP8 else gpu.bf16_flops) * shared
    linear = peak * (EXPERTS_EFFICIENCY if model.experts else DENSE_EFFICIENCY)
    attention = gpu.bf16_flops * shared * ATTENTION_EFFICIENCY
    pair_flops = 4 * model.heads * model.head_dim
    windowed = model.window_layers * pair_flops * model.window_tokens / attention
    memory = gpu.memory_bytes_per_s * ranks
    layer_bytes = model.kv_bytes_per_token_and_layer(kv_dtype_bytes, ranks)
    return Roofline(
        token_s=2 * model.active_parameters / linear + windowed,
        pair_s=model.full_layers * pair_flops / attention,
        weights_s=model.weight_bytes / (memory * WEIGHTS_EFFICIENCY),
        decode_context_s=model.full_layers * layer_bytes / (memory * KV_EFFICIENCY),
        load_s=model.layers * layer_bytes / (gpu.load_bytes_per_s * ranks),
    )
