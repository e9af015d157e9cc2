from __future__ import annotations

import pytest

from epp.catalog.gpu import GPUS, Gpu, find
from epp.catalog.models import MODELS
from epp.catalog.roofline import roofline


@pytest.mark.parametrize("gpu", GPUS.values(), ids=GPUS)
def test_a_gpu_is_faster_at_its_own_memory_than_at_the_hosts(gpu: Gpu) -> None:
    assert gpu.load_bytes_per_s < gpu.link_bytes_per_s < gpu.memory_bytes_per_s
    assert gpu.bf16_flops <= gpu.fp8_flops
    assert gpu.memory_bytes > 2**33


@pytest.mark.parametrize("name", ["H100", "h100-sxm", "NVIDIA H100", "nvidia-h100-80gb", "H100-SXM5-80GB"])
def test_a_gpu_is_found_under_the_names_that_it_has(name: str) -> None:
    assert find(name) is GPUS["h100"]


def test_an_unknown_gpu_is_not_guessed() -> None:
    assert find("h1000") is None


@pytest.mark.parametrize(
    ("model", "gpu", "ranks", "low", "high"),
    [
        ("Qwen/Qwen3-32B", "h100", 2, 15_928, 20_480),  # the llm-d project's recipe, and its fit
        ("openai/gpt-oss-120b", "h100", 1, 36_000, 42_000),  # 39,065, the same recipe
    ],
)
def test_prefill_is_as_fast_as_it_was_measured(model: str, gpu: str, ranks: int, low: float, high: float) -> None:
    assert low <= 1 / roofline(MODELS[model], GPUS[gpu], ranks).token_s <= high


def test_an_l4_prefills_a_long_prompt_in_the_time_that_was_published() -> None:
    """Source of the figures: LMCache's page on CPU offload, 15,376 tokens of Llama-3.1-8B cold on one L4 in 6.537 s."""
    times = roofline(MODELS["meta-llama/Llama-3.1-8B-Instruct"], GPUS["l4"])
    assert times.prefill_s(15_376) == pytest.approx(6.537, rel=0.03)


def test_prefill_behind_a_cached_prefix_is_what_the_whole_takes_longer() -> None:
    times = roofline(MODELS["Qwen/Qwen3-32B"], GPUS["h100"], 2)
    assert times.prefill_s(10_000) + times.prefill_s(20_000, 10_000) == pytest.approx(times.prefill_s(30_000))


def test_twice_the_ranks_take_half_the_time_unless_they_copy_heads() -> None:
    model, gpu = MODELS["Qwen/Qwen3-32B"], GPUS["h100"]
    two, four, sixteen = (roofline(model, gpu, n) for n in (2, 4, 16))
    assert four.token_s * 2 == pytest.approx(two.token_s)
    assert four.load_s * 2 == pytest.approx(two.load_s)
    assert sixteen.load_s == pytest.approx(roofline(model, gpu, 8).load_s)
