"""The same tokens, wherever the KV came from."""

from __future__ import annotations

from pathlib import Path

from tests.vllm.engine import engine, prompts


def test_a_prompt_from_host_memory_gives_the_tokens_of_a_cold_one(model: Path) -> None:
    asked = prompts(4, 700)
    with engine(model, enable_prefix_caching=True) as plain:
        expected = plain.generate(asked)
    with engine(model, {"max_local_cpu_size": 0.1, "chunk_size": 64}, enable_prefix_caching=True) as tested:
        assert tested.generate(asked) == expected, "cold"
        assert tested.generate(asked) == expected, "from the GPU's cache"
        assert tested.metric("vllm:external_prefix_cache_hits") == 0
        tested.forget_gpu()
        assert tested.generate(asked) == expected, "from host memory"
        assert tested.metric("vllm:external_prefix_cache_hits") == 4 * 640
        assert tested.metric("vllm:prompt_tokens_cached_by_source", source="host") == 4 * 640
