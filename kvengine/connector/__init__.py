"""``KVEngineConnector``: the offload engine as a KV connector of vLLM 0.32.

vLLM calls the connector in the middle of its steps, where an exception ends the engine. So this engine's own errors
must not leave this module: on the scheduler's side, every call that could raise is guarded here; in a worker, every job
is (``worker.py``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import override
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    SupportsHMA,
)
from vllm.v1.metrics.stats import CacheHitSource

from kvengine import lifetime
from kvengine.connector.geometry import geometry
from kvengine.connector.logs import join_vllm
from kvengine.connector.messages import Orders, Reports
from kvengine.connector.scheduler import Scheduler
from kvengine.connector.statistics import Exposition, Statistics
from kvengine.connector.worker import Worker
from kvengine.settings import read_settings

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig
    from vllm.distributed.kv_events import KVCacheEvent
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")


class KVEngineConnector(KVConnectorBase_V1, SupportsHMA):
    """One object on the scheduler's side, and one in every worker. Each forwards vLLM's calls to its half."""

    _cache_hit_source = CacheHitSource.HOST
    scheduler_type = Scheduler
    worker_type = Worker

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        join_vllm()
        settings, warnings = read_settings(vllm_config.kv_transfer_config.kv_connector_extra_config)
        shape = geometry(vllm_config, kv_cache_config, settings)
        self._scheduler: Scheduler | None = None
        self._worker: Worker | None = None
        if role is KVConnectorRole.SCHEDULER:
            for warning in warnings:
                log.warning("%s", warning)
            policy = vllm_config.kv_transfer_config.kv_load_failure_policy
            if policy != "recompute":
                log.warning(
                    "kv_load_failure_policy %s: a load that fails fails its request; recompute computes it", policy
                )
            self._scheduler = self.scheduler_type(shape, settings)
        else:
            first = vllm_config.parallel_config.rank == 0
            self._worker = self.worker_type(shape, verify=settings.verify, logs_memory=first)
        lifetime.register(self)

    @property
    @override
    def requires_kv_delivery(self) -> bool:
        return False  # a cache: no receiver waits for what it stores

    # Called on the scheduler's side.

    @override
    def bind_kv_cache_manager(self, kv_cache_manager: KVCacheManager) -> None:
        super().bind_kv_cache_manager(kv_cache_manager)
        self._of_scheduler.bind(kv_cache_manager)

    @override
    def on_new_request(self, request: Request) -> None:
        self._guarded(lambda: self._of_scheduler.added(request), None)

    @override
    def get_num_new_matched_tokens(self, request: Request, num_computed_tokens: int) -> tuple[int | None, bool]:
        nothing: tuple[int | None, bool] = (0, False)
        return self._guarded(
            lambda: self._of_scheduler.match(request, num_computed_tokens), nothing, request_id=request.request_id
        )

    @override
    def update_state_after_alloc(self, request: Request, blocks: KVCacheBlocks, num_external_tokens: int) -> None:
        def refused() -> None:  # the promised load was not ordered: the request computes
            if num_external_tokens:
                self._of_scheduler.refuse(request.request_id)

        self._guarded(lambda: self._of_scheduler.allocated(request, blocks, num_external_tokens), None, refused)

    @override
    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> KVConnectorMetadata:
        orders = self._guarded(lambda: self._of_scheduler.orders(scheduler_output), None)
        return self._of_scheduler.queued() if orders is None else orders

    @override
    def update_connector_output(self, connector_output: KVConnectorOutput) -> None:
        reports = connector_output.kv_connector_worker_meta
        if isinstance(reports, Reports):
            self._guarded(lambda: self._of_scheduler.reported(reports), None)

    @override
    def request_finished(self, request: Request, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        return False, self._guarded(lambda: self._of_scheduler.ended(request), None)

    @override
    def request_finished_all_groups(
        self, request: Request, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        return False, self._guarded(lambda: self._of_scheduler.ended(request), None)

    @override
    def has_pending_push_work(self) -> bool:
        return self._of_scheduler.busy

    @override
    def take_events(self) -> Iterable[KVCacheEvent]:
        nothing: list[KVCacheEvent] = []
        return self._guarded(self._of_scheduler.events, nothing)

    @override
    def get_kv_connector_stats(self) -> Statistics | None:
        return self._guarded(self._scheduler.statistics, None) if self._scheduler is not None else None

    @classmethod
    @override
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> Statistics:
        return Statistics(data=data or {})

    @classmethod
    @override
    def build_prom_metrics(
        cls,
        vllm_config: VllmConfig,
        metric_types: dict[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> Exposition:
        return Exposition(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    @override
    def reset_cache(self) -> bool | None:
        return self._guarded(self._of_scheduler.reset, False)

    # Called in a worker.

    @override
    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        self._of_worker.register(kv_caches)

    @override
    def handle_preemptions(self, kv_connector_metadata: KVConnectorMetadata) -> None:
        self._of_worker.load(self._orders(kv_connector_metadata))

    @override
    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Do nothing: the loads began at the start of the step."""

    @override
    def wait_for_layer_load(self, layer_name: str) -> None:
        """Do nothing: no request is scheduled before its load has ended."""

    @override
    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Do nothing: blocks are stored once all of their layers are computed."""

    @override
    def wait_for_save(self) -> None:
        self._of_worker.store(self._orders(self._get_connector_metadata()))

    @override
    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        ended, failed = self._of_worker.finished()
        return KVConnectorTransferResults(finished_recving=ended, failed_recving=failed)

    @override
    def build_connector_worker_meta(self) -> Reports:
        return self._of_worker.reports()

    # Called on both sides.

    @override
    def shutdown(self) -> None:
        if self._worker is not None:
            self._worker.close()
        if self._scheduler is not None:
            self._scheduler.stop()

    def clear(self) -> None:
        """Forget all KV that is stored. Only the scheduler's side acts on it; in a worker this does nothing."""
        if self._scheduler is not None:
            self.reset_cache()

    def _guarded(
        self,
        call: Callable[[], Answer],
        otherwise: Answer,
        recover: Callable[[], None] | None = None,
        *,
        request_id: str | None = None,
    ) -> Answer:
        """Return what ``call`` returns, or ``otherwise`` after an error.

        ``recover`` runs after an error. ``request_id``: the only request that an error affects, which then neither
        loads nor stores; without it, an error ends offloading.
        """
        try:
            return call()
        except Exception:
            if not self._of_scheduler.stopped:  # afterwards, repeated errors are only counted
                log.exception("an error of the offload engine's own; please report it")
            self._of_scheduler.failed(request_id)
            if recover is not None:
                recover()
            return otherwise

    @property
    def _of_scheduler(self) -> Scheduler:
        assert self._scheduler is not None  # noqa: S101 - vLLM calls a half's methods on that half only
        return self._scheduler

    @property
    def _of_worker(self) -> Worker:
        assert self._worker is not None  # noqa: S101
        return self._worker

    @staticmethod
    def _orders(metadata: KVConnectorMetadata) -> Orders:
        assert isinstance(metadata, Orders)  # noqa: S101 - made by build_connector_meta
        return metadata
