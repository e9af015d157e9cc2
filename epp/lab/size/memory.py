"""Where a GPU's memory goes: weights, what the engine needs to run, and KV with the rest.

The engine's own part is an estimate. vLLM measures it at start, for its largest batch, and two things dominate: logits
of ``max_num_seqs`` sequences in the sampler, and the experts' intermediate results. It differs by version and by
enabled features, so it is a range, and so are the tokens that follow from it. The blocks observed in six setups lie
within the range (``tests/epp/lab/size/test_memory.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

from epp.catalog.gpu import GIB, Gpu
from epp.catalog.model import Model

CONTEXT_BYTES = round(0.8 * GIB)
"""CUDA's context, the collectives' buffers, graphs of a small model. A guess."""
SAMPLER_BYTES = 22
"""Per sequence of the largest batch and word of the vocabulary: logits in 2 and 4 bytes, sorted copies and their 8-byte
positions, probabilities. Source: fits 8,474 and 18,625 blocks of Qwen3-32B on two H100 to 0.4 GiB.
"""
EXPERTS_BYTES = 3 * GIB
"""Intermediate results of a model with experts. Source: gpt-oss-120b on one H100, vllm-project/vllm#23278."""
LEAST, MOST = 0.6, 1.7
"""The ends of the range, as shares of the estimate."""
_LARGE_BYTES = 70 * GIB
_A100 = "a100"


@dataclass(frozen=True, slots=True)
class Range:
    """An estimate and its likely range. Units: bytes, unless its owner names another."""

    low: int
    best: int
    high: int

    @property
    def exact(self) -> bool:
        """Whether the value is known rather than estimated."""
        return self.low == self.high


@dataclass(frozen=True, slots=True)
class GpuShare:
    """The memory of one GPU of an endpoint. Units: bytes."""

    taken_bytes: int
    """The engine's total."""
    weight_bytes: int
    overhead: Range
    kv: Range
    """What is left for KV; never below 0."""


def default_sequences(gpu: Gpu) -> int:
    """Return the default of ``--max-num-seqs`` in vLLM's server. Source: ``engine/arg_utils.py`` of vLLM 0.32."""
    return 1024 if gpu.memory_bytes >= _LARGE_BYTES and not gpu.name.startswith(_A100) else 256


def overhead_of(model: Model, sequences: int) -> Range:
    """Return what the engine takes of one GPU beside weights and KV."""
    sampler = SAMPLER_BYTES * sequences * model.vocabulary
    best = CONTEXT_BYTES + sampler + (EXPERTS_BYTES if model.experts else 0)
    return Range(round(best * LEAST), best, round(best * MOST))


def share_of(memory_bytes: int, utilization: float, model: Model, ranks: int, overhead: Range) -> GpuShare:
    """Return where ``utilization`` of a GPU goes when ``ranks`` of them share ``model``."""
    taken, weights = int(memory_bytes * utilization), -(-model.weight_bytes // ranks)
    left = taken - weights
    kv = Range(*(max(0, left - each) for each in (overhead.high, overhead.best, overhead.low)))
    return GpuShare(taken, weights, overhead, kv)
