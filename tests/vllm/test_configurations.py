"""What vLLM's configuration makes of the connector: roles, keys, refusals. vLLM's own scheduler, and no engine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.vllm.engine import BLOCK_TOKENS, ENVIRONMENT, prompts

os.environ.update(ENVIRONMENT)

from vllm import SamplingParams
from vllm.config import KVTransferConfig, VllmConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheTensor,
    MLAAttentionSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from kvengine.connector import KVEngineConnector
from kvengine.connector.geometry import geometry, salt
from kvengine.connector.messages import Orders, Reports
from kvengine.connector.worker import page_of
from kvengine.copiers.base import JobId
from kvengine.errors import Unsupported
from kvengine.index import ChunkKey
from kvengine.settings import Settings

BLOCKS, LAYERS = 64, 3
SPEC = FullAttentionSpec(block_size=BLOCK_TOKENS, num_kv_heads=2, head_size=32, dtype=torch.float32)


def config(model: Path, *, role: str = "kv_both", offload: dict[str, Any] | None = None, **options: Any) -> VllmConfig:
    transfer = KVTransferConfig(
        kv_connector="KVEngineConnector", kv_connector_module_path="kvengine.connector", kv_role=role,
        kv_load_failure_policy="recompute", kv_connector_extra_config={"num_cpu_blocks": 64, **(offload or {})},
    )  # fmt: skip
    return EngineArgs(**{
        "model": str(model), "dtype": "float32", "enforce_eager": True, "skip_tokenizer_init": True,
        "block_size": BLOCK_TOKENS, "max_model_len": 1024, "max_num_batched_tokens": 1024,
        "enable_prefix_caching": True, "async_scheduling": False, "kv_transfer_config": transfer, **options,
    }).create_engine_config()  # fmt: skip


def cache(*specs: Any) -> KVCacheConfig:
    groups, tensors = [], []
    for number, spec in enumerate(specs or (SPEC,)):
        layers = [f"group.{number}.layer.{layer}" for layer in range(LAYERS)]
        page = spec.page_size_bytes
        tensors.append(
            KVCacheTensor(
                size=page * BLOCKS * LAYERS, layers=layers, layer_stride=page * BLOCKS, block_stride=page
            )
        )  # fmt: skip
        groups.append(KVCacheGroupSpec(layers, spec))
    return KVCacheConfig(num_blocks=BLOCKS, kv_cache_tensors=tensors, kv_cache_groups=groups)


class Steps:
    """vLLM's scheduler; each request gets a token, and each job ends in the next step."""

    def __init__(self, vllm_config: VllmConfig) -> None:
        vllm_config.cache_config.num_gpu_blocks = BLOCKS
        manager = StructuredOutputManager(vllm_config)
        self._scheduler = Scheduler(vllm_config, cache(), manager, BLOCK_TOKENS, log_stats=True)
        init_none_hash(sha256)
        self._hasher = get_request_block_hasher(BLOCK_TOKENS, sha256)
        self._reports = Reports(ready_slots=32, capacity_slots=32)
        self.loads = self.stores = 0
        self.unreported: list[JobId] = []
        self._silent = False
        self.answer("first", [1] * 5)  # the workers say how much memory they have

    def answer(self, name: str, prompt: list[int]) -> None:
        """From the first step to the last."""
        self._add(name, prompt)
        while self._scheduler.has_requests():
            self._step()

    def forget_device(self) -> None:
        assert self._scheduler.reset_prefix_cache()

    @property
    def connector(self) -> KVEngineConnector:
        found = self._scheduler.connector
        assert isinstance(found, KVEngineConnector)
        return found

    def order(self, name: str, prompt: list[int]) -> None:
        """To the end, while the workers say nothing of their jobs: those are in ``unreported``."""
        self._silent = True
        self._add(name, prompt)
        while self._scheduler.get_num_unfinished_requests():
            self._step()

    def _add(self, name: str, prompt: list[int]) -> None:
        self._scheduler.add_request(
            Request(name, prompt, SamplingParams(max_tokens=1), None, block_hasher=self._hasher)
        )  # fmt: skip

    def _step(self) -> None:
        output = self._scheduler.schedule()
        orders = output.kv_connector_metadata
        assert isinstance(orders, Orders)
        self.loads += len(orders.loads)
        self.stores += len(orders.stores)
        ids = list(output.num_scheduled_tokens)
        told = KVConnectorOutput(
            kv_connector_worker_meta=self._reports, finished_recving={job.request_id for job in orders.loads}
        )
        ran = ModelRunnerOutput(
            req_ids=ids, req_id_to_index={each: n for n, each in enumerate(ids)}, sampled_token_ids=[[7] for _ in ids],
            kv_connector_output=told,
        )  # fmt: skip
        self._scheduler.update_from_output(output, ran)
        ended = [job.id for job in (*orders.loads, *orders.stores)]
        if self._silent:
            self.unreported += ended
            ended = []
        self._reports = Reports(finished=dict.fromkeys(ended, 1), ready_slots=32, capacity_slots=32)


@pytest.mark.parametrize(
    ("role", "offload", "stores", "loads"),
    [
        ("kv_both", {}, 1, 1),
        ("kv_producer", {}, 1, 0),
        ("kv_consumer", {}, 0, 0),  # nobody else stores
        ("kv_both", {"local_cpu": False}, 0, 0),
        ("kv_both", {"store_after": 2}, 1, 0),
        ("kv_both", {"store_after": 3}, 0, 0),
    ],
)
def test_who_stores_and_who_loads(model: Path, role: str, offload: dict[str, Any], stores: int, loads: int) -> None:
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
    connector._of_scheduler.planner._jobs[stores[0]].keys = [ChunkKey(b"a chunk that nobody holds")]
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
        ((SPEC, SPEC), r"2 groups of KV cache \(FullAttentionSpec\)"),
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
