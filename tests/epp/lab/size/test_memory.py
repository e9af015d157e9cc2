"""Estimated GPU blocks are compared with the blocks that real engines reported."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.catalog.gpu import GIB, GPUS
from epp.catalog.model import Model, Quantization
from epp.catalog.models import MODELS
from epp.lab.size.layout import layout_of
from epp.lab.size.memory import default_sequences, overhead_of, share_of

QWEN, LLAMA, GPT_OSS = (
    MODELS[name] for name in ("Qwen/Qwen3-32B", "meta-llama/Llama-3.3-70B-Instruct", "openai/gpt-oss-120b")
)


@pytest.mark.parametrize(
    ("model", "ranks", "utilization", "blocks"),
    [
        (QWEN, 2, 0.65, 9271),  # llm-d's guide, CPU offloading
        (QWEN, 2, 0.65, 8474),  # its guide, storage offloading
        (LLAMA, 4, 0.65, 10_768),  # the same
        (QWEN, 2, 0.90, 18_625),  # its report of June 2026: 2,384,000 tokens in 8 servers
        # 8.11 GiB on each of 4: vllm-project/vllm#21348
        (replace(MODELS["Qwen/Qwen3-235B-A22B"], quantization=Quantization.FP8), 4, 0.90, 11_180),
    ],
)
def test_engines_on_h100_have_as_many_blocks_as_is_estimated(
    model: Model, ranks: int, utilization: float, blocks: int
) -> None:
    gpu = GPUS["h100"]
    kv = share_of(gpu.memory_bytes, utilization, model, ranks, overhead_of(model, default_sequences(gpu))).kv
    block = layout_of(model, 16, ranks).block_bytes
    assert kv.low // block <= blocks <= kv.high // block


def test_the_engine_of_a_model_with_experts_takes_as_much_as_was_seen() -> None:
    """Reported for gpt-oss-120b on one H100: 65.97 GiB of weights, 2.14 GiB short; vllm-project/vllm#23278."""
    seen = 0.9 * GPUS["h100"].memory_bytes - (65.9651 - 2.14) * GIB
    overhead = overhead_of(GPT_OSS, 1024)
    assert overhead.low < seen < overhead.high
    assert overhead.best == pytest.approx(seen, rel=0.1)


@pytest.mark.parametrize(("gpu", "sequences"), [("h100", 1024), ("b200", 1024), ("a100", 256), ("l4", 256)])
def test_batches_are_as_large_as_the_engines_own_default(gpu: str, sequences: int) -> None:
    assert default_sequences(GPUS[gpu]) == sequences


@given(
    model=st.sampled_from(list(MODELS.values())),
    gpu=st.sampled_from(list(GPUS.values())),
    power=st.integers(0, 4),
    low=st.floats(0.01, 1.0),
    high=st.floats(0.01, 1.0),
)
def test_more_memory_is_never_fewer_bytes_for_kv(
    model: Model, gpu: object, power: int, low: float, high: float
) -> None:
    memory = gpu.memory_bytes  # type: ignore[attr-defined]
    overhead = overhead_of(model, 256)
    less, more = (share_of(memory, part, model, 2**power, overhead).kv for part in sorted((low, high)))
    assert less.low <= more.low
    assert less.best <= more.best
    assert less.high <= more.high
    assert less.low <= less.best <= less.high


# Layouts.


def test_a_model_of_one_kind_of_layers_has_one_group() -> None:
    layout = layout_of(QWEN, 16, 2)
    assert (layout.block_bytes, layout.full_groups, layout.window_groups) == (2 * 2**20, 1, 0)
    assert layout.tokens(9271) == layout.most_tokens(9271) == 148_336


def test_layers_with_windows_are_groups_of_their_own() -> None:
    layout = layout_of(GPT_OSS, 16)
    assert (layout.full_groups, layout.window_groups) == (1, 1)
    assert layout.block_bytes == 16 * 18 * 2048
    assert layout.tokens(1000) == 8000
    assert layout.most_tokens(1000) == 16_000
    gemma = layout_of(MODELS["google/gemma-3-27b-it"], 16)
    assert (gemma.full_groups, gemma.window_groups) == (1, 6)  # 10 full ones, 52 = 5 * 10 + 2 with windows


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@given(power=st.integers(0, 5), blocks=st.integers(0, 10**6))
def test_blocks_of_all_groups_hold_at_least_the_kv_of_their_tokens(model: Model, power: int, blocks: int) -> None:
    ranks = 2**power
    layout = layout_of(model, 16, ranks)
    tokens = layout.tokens(blocks)
    assert blocks * layout.block_bytes * ranks >= tokens * model.kv_bytes_per_token(ranks=ranks)
    assert tokens <= layout.most_tokens(blocks)
    if not model.window_layers:
        assert layout.block_bytes * ranks == 16 * model.kv_bytes_per_token(ranks=ranks)
