"""Runs vLLM's own scheduler with the connector, step by step, without an engine."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from vllm import SamplingParams
from vllm.config import KVTransferConfig, VllmConfig
from vllm.distributed.kv_transfer.kv_connector.utils import KVOutputAggregator
from vllm.engine.arg_utils import EngineArgs
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, KVCacheTensor
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from kvengine.connector import KVEngineConnector
from kvengine.connector.geometry import geometry
from kvengine.connector.messages import Orders, Reports
from kvengine.connector.statistics import Statistics
from kvengine.copiers.base import JobId
from kvengine.settings import read_settings
from tests.vllm.engine import BLOCK_TOKENS, PATIENCE_S
from tests.vllm.probe import ProbedWorker

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
    """vLLM's scheduler, whose requests get a token in each step, and whose jobs end in the next step."""

    def __init__(self, vllm_config: VllmConfig) -> None:
        vllm_config.cache_config.num_gpu_blocks = BLOCKS
        manager = StructuredOutputManager(vllm_config)
        self.scheduler = Scheduler(vllm_config, cache(), manager, BLOCK_TOKENS, log_stats=True)
        init_none_hash(sha256)
        self._hasher = get_request_block_hasher(BLOCK_TOKENS, sha256)
        self._reports = Reports(ready_slots=32, capacity_slots=32)
        self.loads = self.stores = 0
        self.unreported: list[JobId] = []
        self.statistics = Statistics()
        """All statistics that vLLM received."""
        self._withholds = False
        self.answer("first", [1] * 5)  # the workers report how much memory they have

    def answer(self, name: str, prompt: list[int], **sampling: Any) -> None:
        """Run a request from its first step to its last one, including its copies."""
        self.add(name, prompt, **sampling)
        self.step_until(lambda: not self.scheduler.has_requests())

    def answer_without_waiting(self, name: str, prompt: list[int], **sampling: Any) -> None:
        """Run a request to its last step; copies may go on."""
        self.add(name, prompt, **sampling)
        self.step_until(lambda: not self.scheduler.get_num_unfinished_requests())

    def order(self, name: str, prompt: list[int]) -> None:
        """Do the same while the workers report no jobs; these are in ``unreported``."""
        self._withholds = True
        self.answer_without_waiting(name, prompt)

    def forget_device(self) -> None:
        assert self.scheduler.reset_prefix_cache()

    @property
    def connector(self) -> KVEngineConnector:
        found = self.scheduler.connector
        assert isinstance(found, KVEngineConnector)
        return found

    @property
    def free_blocks(self) -> int:
        return int(self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks())

    def add(self, name: str, prompt: list[int], **sampling: Any) -> Request:
        request = Request(
            name, prompt, SamplingParams(**{"max_tokens": 1, **sampling}), None, block_hasher=self._hasher
        )  # fmt: skip
        self.scheduler.add_request(request)
        return request

    def abort(self, name: str) -> None:
        self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)

    def step(self) -> None:
        output = self.scheduler.schedule()
        orders = output.kv_connector_metadata
        assert isinstance(orders, Orders)
        self.loads += len(orders.loads)
        self.stores += len(orders.stores)
        ids = list(output.num_scheduled_tokens)
        ran = ModelRunnerOutput(
            req_ids=ids, req_id_to_index={each: n for n, each in enumerate(ids)}, sampled_token_ids=[[7] for _ in ids],
            kv_connector_output=self.report(orders),
        )  # fmt: skip
        for each in self.scheduler.update_from_output(output, ran).values():
            if each.scheduler_stats is not None and each.scheduler_stats.kv_connector_stats:
                statistics = Statistics(data=each.scheduler_stats.kv_connector_stats)
                self.statistics = self.statistics.aggregate(statistics)

    def step_until(self, so: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not so():
            assert time.monotonic() < until
            self.step()

    def report(self, orders: Orders) -> KVConnectorOutput | None:
        """Return the workers' report at the end of a step."""
        output = KVConnectorOutput(
            kv_connector_worker_meta=self._reports, finished_recving={job.request_id for job in orders.loads}
        )
        ended = [job.id for job in (*orders.loads, *orders.stores)]
        if self._withholds:
            self.unreported += ended
            ended = []
        self._reports = Reports(finished=dict.fromkeys(ended, 1), ready_slots=32, capacity_slots=32)
        return output


class StepsOfWorkers(Steps):
    """Steps with real workers, whose copies tests hold back; their reports are aggregated as vLLM does it."""

    def __init__(self, vllm_config: VllmConfig, workers: int = 1) -> None:
        vllm_config.parallel_config.world_size = workers
        settings, _ = read_settings(vllm_config.kv_transfer_config.kv_connector_extra_config, {})
        shape = geometry(vllm_config, cache(), settings)
        self.workers = [ProbedWorker(shape) for _ in range(workers)]
        for worker in self.workers:
            worker.register({f"layer.{n}": torch.zeros(BLOCKS, 2, BLOCK_TOKENS, 64) for n in range(LAYERS)})
        self._aggregator = KVOutputAggregator(workers)
        super().__init__(vllm_config)

    def report(self, orders: Orders) -> KVConnectorOutput | None:
        outputs = []
        for worker in self.workers:
            worker.load(orders)
            worker.store(orders)
            ended, failed = worker.finished()
            output = KVConnectorOutput(
                finished_recving=ended, failed_recving=failed, kv_connector_worker_meta=worker.reports()
            )
            outputs.append(
                ModelRunnerOutput(req_ids=[], req_id_to_index={}, sampled_token_ids=[], kv_connector_output=output)
            )
        together = self._aggregator.aggregate(list(outputs))
        assert together is not None
        return together.kv_connector_output

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
