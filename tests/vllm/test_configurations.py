"""The connector under vLLM's configurations: roles, keys, refusals; with vLLM's own scheduler, and no engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import KVConnectorOutput

from kvengine.connector.geometry import geometry, salt
from kvengine.connector.messages import Reports
from kvengine.connector.worker import page_of
from kvengine.errors import Unsupported
from kvengine.index import ChunkKey
from kvengine.settings import Settings
from tests.vllm.engine import BLOCK_TOKENS, prompts
from tests.vllm.steps import LAYERS, SPEC, Steps, cache, config

MAMBA = MambaSpec(block_size=32, shapes=((4, 16), (8, 16)), dtypes=(torch.float32, torch.float32))


@pytest.mark.parametrize(
    ("role", "offload", "stores", "loads"),
    [
        ("kv_both", {}, 1, 1),
        ("kv_producer", {}, 1, 0),
        ("kv_consumer", {}, 0, 0),  # no other instance stores
        ("kv_both", {"local_cpu": False}, 0, 0),
        ("kv_both", {"store_after": 2}, 1, 0),
        ("kv_both", {"store_after": 3}, 0, 0),
    ],
)
def test_roles_that_store_and_roles_that_load(
    model: Path, role: str, offload: dict[str, Any], stores: int, loads: int
) -> None:
    steps = Steps(config(model, role=role, offload=offload))
    (prompt,) = prompts(1, 600)
    for name in ("cold", "again"):
        steps.answer(name, prompt)
        steps.answer(f"after {name}", [1] * 5)
        steps.forget_device()
    assert (steps.stores, steps.loads) == (stores, loads)


def test_an_error_over_one_job_costs_no_other_its_blocks_of_the_device(model: Path) -> None:
    steps = Steps(config(model))
    connector = steps.connector
    for name, prompt in zip(("a", "b"), prompts(2, 600), strict=True):
        steps.order(name, prompt)
    stores = steps.unreported
    assert len(stores) == 2
    connector._of_scheduler.planner.jobs[stores[0]].keys = [ChunkKey(b"a chunk that is not held")]
    reports = Reports(finished=dict.fromkeys(stores, 1), ready_slots=32, capacity_slots=32)
    connector.update_connector_output(KVConnectorOutput(kv_connector_worker_meta=reports))
    assert connector._of_scheduler.stopped
    assert not connector.has_pending_push_work(), "or the engine would step for ever"
    steps.forget_device()


@pytest.mark.parametrize(
    ("specs", "named"),
    [
        ((SlidingWindowSpec(block_size=32, num_kv_heads=2, head_size=32, dtype=torch.float32, sliding_window=64),),
         "SlidingWindowSpec"),
        ((ChunkedLocalAttentionSpec(block_size=32, num_kv_heads=2, head_size=32, dtype=torch.float32,
                                    attention_chunk_size=64),), "ChunkedLocalAttentionSpec"),
        ((MLAAttentionSpec(block_size=32, num_kv_heads=1, head_size=32, dtype=torch.float32),), "MLAAttentionSpec"),
        ((FullAttentionSpec(block_size=32, num_kv_heads=2, head_size=32, dtype=torch.float32, sliding_window=64),),
         "sliding_window 64"),
        ((SPEC, SPEC), r"2 groups of KV cache \(FullAttentionSpec\): only models that are full attention throughout"),
        ((MAMBA,), "MambaSpec: only full attention is kept yet; start without kvengine"),
        ((SPEC, MAMBA), r"2 groups of KV cache \(FullAttentionSpec, MambaSpec\): .*; start without kvengine$"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_attention_that_is_not_full_throughout_is_refused_by_name(model: Path, specs: Any, named: str) -> None:
    with pytest.raises(Unsupported, match=named):
        geometry(config(model), cache(*specs), Settings())


@pytest.mark.parametrize(
    "name", ["pipeline_parallel_size", "decode_context_parallel_size", "prefill_context_parallel_size"]
)
def test_other_parallelism_than_of_tensors_is_refused_by_name(model: Path, name: str) -> None:
    asked = config(model)
    setattr(asked.parallel_config, name, 2)
    with pytest.raises(Unsupported, match=f"{name} 2"):
        geometry(asked, cache(), Settings())


def test_blocks_whose_hashes_are_of_another_size_are_refused(model: Path) -> None:
    asked = config(model)
    asked.cache_config.block_size = 16
    with pytest.raises(Unsupported, match="blocks of 32 tokens whose hashes stand for 16"):
        geometry(asked, cache(), Settings())


def test_drafts_are_refused_by_name(model: Path) -> None:
    drafts = {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 3}
    with pytest.raises(Unsupported, match="speculative decoding"):
        geometry(config(model, speculative_config=drafts), cache(), Settings())


def test_a_layout_whose_blocks_are_not_one_piece_is_refused_by_its_layer() -> None:
    whole = torch.zeros(4, 2, 32, 64)
    assert page_of("layer", whole).page_bytes == 2 * 32 * 64 * 4
    with pytest.raises(Unsupported, match=r"layer nine: .* is not one piece of memory"):
        page_of("nine", whole[:, :, :16])


def test_whatever_makes_equal_tokens_other_bytes_makes_other_keys(model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.symlink_to(model)

    def salted(
        spec: Any = SPEC, layers: int = LAYERS, change: Callable[[Any], None] | None = None, **options: Any
    ) -> bytes:
        asked = config(options.pop("model", model), **options)
        if change is not None:
            change(asked)
        return salt(asked, spec, layers)

    def spec(**changed: Any) -> FullAttentionSpec:
        given = {"block_size": BLOCK_TOKENS, "num_kv_heads": 2, "head_size": 32, "dtype": torch.float32}
        return FullAttentionSpec(**{**given, **changed})

    different = [
        salted(),
        salted(model=other),
        salted(dtype="bfloat16"),
        salted(kv_cache_dtype="fp8"),
        salted(prefix_caching_hash_algo="sha256_cbor"),
        salted(spec(block_size=64)),
        salted(spec(num_kv_heads=1)),
        salted(spec(head_size=64)),
        salted(spec(dtype=torch.bfloat16)),
        salted(layers=4),
        salted(change=lambda asked: setattr(asked.parallel_config, "tensor_parallel_size", 2)),
        salted(change=lambda asked: setattr(asked.model_config, "revision", "main")),
    ]
    assert len(set(different)) == len(different)
    assert salted() == different[0]
