"""What a simulated engine consists of: timing, memory, limits; and the table of named presets.

Times follow a roofline: the linear layers of a step take the longer of reading the weights and computing the batch's
tokens; attention is added per (token, context token) pair for prefill and per context token read for decode.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple


class Chunk(NamedTuple):
    """Part of a prompt computed in one step. Units: tokens."""

    context: int
    """Tokens of the same sequence whose KV was computed before."""
    tokens: int


@dataclass(frozen=True, slots=True)
class Timing:
    """The duration of a step. Units: seconds."""

    overhead_s: float
    """Per step: scheduling, launches, collectives."""
    weights_s: float
    """Reading the weights once, which is the floor of a step's linear layers."""
    token_s: float
    """Linear layers, per token computed."""
    prefill_pair_s: float
    """Prefill attention, per (token, earlier token) pair."""
    decode_context_s: float
    """Decode attention, per token of context read."""

    def step_s(self, chunks: Iterable[Chunk], decodes: int, decode_context: int) -> float:
        """Return the duration of one step that computes ``chunks`` and one token for each of ``decodes`` sequences."""
        tokens, pairs = decodes, 0.0
        for context, n in chunks:
            tokens += n
            pairs += n * (context + n / 2)
        linear = max(self.weights_s, tokens * self.token_s)
        return self.overhead_s + linear + pairs * self.prefill_pair_s + decode_context * self.decode_context_s


@dataclass(frozen=True, slots=True)
class Preset:
    """The model, hardware and limits of one kind of engine.

    Invariant: a sequence of ``max_model_len`` tokens fits into the GPU blocks, and a step has a token for each of
    ``max_num_seqs``, so that no sequence ever starves.
    Raises: ValueError when the invariant does not hold.
    """

    name: str
    model: str
    timing: Timing
    gpu_blocks: int
    cpu_blocks: int
    """0 means that there is no CPU tier."""
    kv_bytes_per_token: int
    load_bytes_per_s: float
    """CPU to GPU, all ranks together."""
    store_bytes_per_s: float
    """GPU to CPU, all ranks together."""
    transfer_latency_s: float = 0.0
    """Added to every transfer."""
    block_tokens: int = 16
    max_num_seqs: int = 1024
    max_batched_tokens: int = 8192
    max_model_len: int = 40960
    note: str = ""
    """What was scaled, in a sentence for the user; empty when nothing was."""

    def __post_init__(self) -> None:
        if self.max_model_len > self.gpu_blocks * self.block_tokens:
            raise ValueError(
                f"{self.name}: max_model_len {self.max_model_len} needs more than {self.gpu_blocks} GPU blocks of "
                f"{self.block_tokens} tokens; lower max_model_len or add blocks"
            )
        if self.max_num_seqs > self.max_batched_tokens:
            raise ValueError(
                f"{self.name}: max_num_seqs {self.max_num_seqs} is more than the {self.max_batched_tokens} tokens of a "
                "step; lower max_num_seqs or raise max_batched_tokens"
            )

    @property
    def block_bytes(self) -> int:
        """Bytes of the KV of one block over all ranks."""
        return self.block_tokens * self.kv_bytes_per_token


# Qwen3-32B, tensor parallel over 2 H100 (989 dense bf16 TFLOP/s, 3.35 TB/s each).
# Source: 65.6 GFLOP per token at 60 % of peak; attention 4 * 64 layers * 8192 FLOP per pair at 55 %; weights 65.6 GB at
# 85 % of bandwidth; KV 256 KiB per token at 80 %. Overhead set so that a batch of 6 decodes at 17.9 ms, as in the llm-d
# guide's low-cache table (18.4 s for 1,024 tokens, v0.4.0). Blocks: the same guide. PCIe 5: 44 GB/s per GPU at pages
# of 32 KiB.
QWEN3_32B = Preset(
    name="qwen3-32b-tp2-h100",
    model="Qwen/Qwen3-32B",
    timing=Timing(overhead_s=4e-3, weights_s=11.5e-3, token_s=55e-6, prefill_pair_s=2e-9, decode_context_s=4.9e-8),
    gpu_blocks=9271,
    cpu_blocks=41000,
    kv_bytes_per_token=262144,
    load_bytes_per_s=88e9,
    store_bytes_per_s=88e9,
    transfer_latency_s=1e-3,
)

# Llama-3.1-8B on one L4 (24 GB). Source: LMCache's CPU offload page: 15,376 prompt tokens cold in 6.54 s, 5 GB of CPU
# RAM. (Its warm 0.147 s is a GPU hit, seen by a client; the model gives the engine 0.064 s.) GPU blocks: what 0.9 of
# 23 GB leaves beside 16 GB of weights. Guesses: the split of the cold time into linear layers and attention, the link.
LLAMA_8B_L4 = Preset(
    name="llama-3.1-8b-l4",
    model="meta-llama/Llama-3.1-8B-Instruct",
    timing=Timing(overhead_s=2e-3, weights_s=60e-3, token_s=360e-6, prefill_pair_s=8.4e-9, decode_context_s=5.5e-7),
    gpu_blocks=2150,
    cpu_blocks=2384,
    kv_bytes_per_token=131072,
    load_bytes_per_s=22e9,
    store_bytes_per_s=22e9,
    transfer_latency_s=1e-3,
    max_num_seqs=256,
    max_batched_tokens=2048,
    max_model_len=16384,
)


def scaled(preset: Preset, *, name: str, tokens: int, speed: float, note: str) -> Preset:
    """Return ``preset`` with one token standing for ``tokens``, and prefill and transfers ``speed`` times as fast.

    A prompt of ``n / tokens`` tokens then takes ``1 / speed`` of the time that ``n`` tokens took, computed or loaded,
    and the caches hold as many such prompts as before. The duration of a step that only decodes does not change.
    """
    timing = preset.timing
    return replace(
        preset,
        name=name,
        timing=replace(
            timing,
            token_s=timing.token_s * tokens / speed,
            prefill_pair_s=timing.prefill_pair_s * tokens * tokens / speed,
            decode_context_s=timing.decode_context_s * tokens,
        ),
        gpu_blocks=preset.gpu_blocks // tokens,
        cpu_blocks=preset.cpu_blocks // tokens,
        kv_bytes_per_token=preset.kv_bytes_per_token * tokens,
        load_bytes_per_s=preset.load_bytes_per_s * speed,
        store_bytes_per_s=preset.store_bytes_per_s * speed,
        transfer_latency_s=preset.transfer_latency_s / speed,
        max_num_seqs=min(preset.max_num_seqs, preset.max_batched_tokens // tokens),
        max_batched_tokens=preset.max_batched_tokens // tokens,
        max_model_len=preset.max_model_len // tokens,
        note=note,
    )


DEMO = scaled(
    QWEN3_32B,
    name="demo",
    tokens=10,
    speed=8.0,
    note=(
        "Scaled for a demo: one token stands for ten (prompts and both caches hold a tenth of the tokens), and prefill "
        "and transfers take an eighth of their time. A decode step takes as long as it does in reality."
    ),
)

PRESETS = {preset.name: preset for preset in (DEMO, QWEN3_32B, LLAMA_8B_L4)}
