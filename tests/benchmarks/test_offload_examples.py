"""Those parts of the offload engine's examples that need no engine."""

from __future__ import annotations

import pytest

from benchmarks.kvengine.long_text import long_text
from benchmarks.kvengine.query_twice import prompt_of
from benchmarks.kvengine.two_pass import Gpu, host_gib, pick_model, texts


@pytest.mark.parametrize(
    ("gpu", "model"),
    [
        (Gpu(79.2, 90), "Qwen/Qwen3-8B"),
        (Gpu(36.0, 80), "Qwen/Qwen3-8B"),
        (Gpu(22.0, 89), "Qwen/Qwen3-8B-FP8"),
        (Gpu(22.0, 86), "Qwen/Qwen3-1.7B"),
        (Gpu(10.0, 75), "Qwen/Qwen3-1.7B"),
    ],
)
def test_the_largest_model_that_fits_is_picked(gpu: Gpu, model: str) -> None:
    assert pick_model(gpu).model == model


def test_eight_bit_weights_come_with_an_eight_bit_cache() -> None:
    assert pick_model(Gpu(24.0, 90)).options == {"kv_cache_dtype": "fp8"}


def test_a_gpu_that_is_too_small_is_refused_with_the_size_that_is_needed() -> None:
    with pytest.raises(RuntimeError, match=r"8.0 GiB, and the smallest model, Qwen/Qwen3-1.7B, needs 10"):
        pick_model(Gpu(8.0, 89))


def test_no_more_host_memory_is_requested_than_this_machine_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert host_gib(10**6, 10**6, pinned=False) < 10**6
    assert "GiB of host memory asked for and" in capsys.readouterr().out


def test_prompts_share_no_chunk() -> None:
    assert len({text[:20] for text in texts(12, 50)}) == 12


def test_a_text_has_the_requested_length_and_depends_on_its_seed() -> None:
    assert len(long_text(10_001, 3)) == 10_001
    assert long_text(5000, 3) == long_text(10_000, 3)[:5000]
    assert long_text(500, 3)[:100] != long_text(500, 4)[:100]


def test_a_fresh_prefix_is_never_seen_twice() -> None:
    assert prompt_of(500, seed=0, fresh=True)[:30] != prompt_of(500, seed=0, fresh=True)[:30]
    assert prompt_of(500, seed=0, fresh=False) == prompt_of(500, seed=0, fresh=False)
