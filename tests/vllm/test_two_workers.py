"""Tensor parallelism: a job ends when both workers have ended it, and fails if it failed in one of them."""

from __future__ import annotations

from pathlib import Path

from epp.catalog.hugging_face import read_model
from epp.lab.size.layout import layout_of
from tests.vllm.engine import BLOCK_TOKENS, Engine, engine, series
from tests.vllm.scenarios import SCENARIOS, Expected, kept, tokens

CHUNK = 128
GIB = 2**30
"""The memory for KV of each worker in these tests."""


def test_two_workers_give_the_tokens_of_one(model: Path, expected: Expected, tmp_path: Path) -> None:
    offload = {"cpu_bytes_to_use": 40 << 20, "chunk_size": CHUNK, "verify": True}
    log = tmp_path / "log"
    with engine(model, offload, probed=True, log=log, tensor_parallel_size=2, enable_prefix_caching=True) as tested:
        assert log.read_text().count("host memory for KV") == 1, "both have the same"
        assert (
            "host memory for KV: per worker 0.02 GiB (20,938,752 bytes, 852 blocks); "
            "per instance of 2 workers 0.04 GiB (41,877,504 bytes, 852 blocks of 32 tokens), in chunks of 128 tokens"
        ) in log.read_text()
        tested.settle()
        has_as_many_blocks_as_its_memory_holds(tested, model)
        for name in ("few", "lengths", "single"):
            assert tokens(tested, name) == expected[name], f"{name}, cold"
            tested.settle()
            tested.forget_gpu()
            before = tested.metric("vllm:external_prefix_cache_hits")
            assert tokens(tested, name) == expected[name], f"{name}, from host memory"
            held = sum(kept(len(prompt), CHUNK) for prompt in SCENARIOS[name].prompts)
            assert tested.metric("vllm:external_prefix_cache_hits") - before == held
        bytes_of_both = tested.ask("kv_bytes")
        assert len(bytes_of_both) == 2
        assert all(compared > 0 and not different for compared, different in bytes_of_both)

        tested.forget_gpu()
        tested.ask("kv_faults", ranks=[1], load="tear")
        assert tokens(tested, "few") == expected["few"], "one of them could not load"
        tested.ask("kv_faults", ranks=[0], store="tear")
        tested.ask("kv_faults", ranks=[1])
        tested.settle()
        assert tokens(tested, "third") == expected["third"]
        tested.settle()
        assert series("kvengine:failed_jobs_total", direction="load") == 4
        assert series("kvengine:failed_jobs_total", direction="store") > 0
        tested.ask("kv_faults")
        tested.forget_gpu()
        before = tested.metric("vllm:external_prefix_cache_hits")
        assert tokens(tested, "third") == expected["third"]
        assert tested.metric("vllm:external_prefix_cache_hits") == before, (
            "what one of them could not store is not found"
        )
        assert series("kvengine:tier_pinned_tokens", tier="gpu") == 0


def has_as_many_blocks_as_its_memory_holds(tested: Engine, model: Path) -> None:
    """The size equals that of ``tierwise size``, to the byte."""
    shape = read_model(model)
    block_bytes = layout_of(shape, BLOCK_TOKENS, 2).block_bytes
    (info,) = [metric for metric in tested.llm.get_metrics() if metric.name == "vllm:cache_config_info"]
    blocks = int(info.labels["num_gpu_blocks"])
    assert blocks == GIB // block_bytes
    assert 2 * block_bytes == BLOCK_TOKENS * shape.kv_bytes_per_token() == layout_of(shape, BLOCK_TOKENS).block_bytes
    for tier, usable in (("gpu", blocks - 1), ("cpu", 852)):  # one GPU block is never used
        assert series("kvengine:tier_capacity_tokens", tier=tier) == usable * BLOCK_TOKENS
        assert series("kvengine:tier_capacity_bytes", tier=tier) == usable * 2 * block_bytes
