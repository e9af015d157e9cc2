"""The scheduler's side: translates vLLM's requests and blocks into the planner's chunks and jobs."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from kvengine.admission import Admission
from kvengine.connector.borrowed import Borrowed
from kvengine.connector.chunking import Chunking
from kvengine.connector.device_watch import DeviceWatch
from kvengine.connector.events import Events
from kvengine.connector.geometry import SALT_BYTES, Geometry
from kvengine.connector.measurements import Measurements
from kvengine.connector.messages import Orders, Reports
from kvengine.connector.statistics import Statistics
from kvengine.copiers.base import Direction, JobId
from kvengine.index import ChunkIndex
from kvengine.jobs import LATE_S
from kvengine.plan import Planner
from kvengine.policies import POLICIES
from kvengine.request_state import RequestState
from kvengine.settings import Settings

if TYPE_CHECKING:
    from vllm.distributed.kv_events import KVCacheEvent
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.request import Request

log = logging.getLogger(__name__)

REPORT = "kvengine_report"
"""A key in a request's ``kv_transfer_params``: if true, the response's ``kv_transfer_params`` report how many of the
prompt's tokens came from which tier."""


class Scheduler:
    """The scheduler's half of the connector. Owner: the engine's thread.

    An error in this half must not take vLLM's engine down. An error in ``match``, which changes nothing, only costs its
    request the use of host memory. After any other error the state is unknown: ``stop`` ends offloading, and the engine
    continues without it.
    """

    def __init__(self, shape: Geometry, settings: Settings) -> None:
        self._shape = shape
        self._block_tokens, self._chunk_tokens = shape.block_tokens, shape.chunk_tokens
        self._chunks = Chunking(shape, decoded=settings.store_decode)
        self._keeps, self._decoded = settings.local_cpu, settings.store_decode
        self.index = ChunkIndex(0, POLICIES[settings.eviction_policy]())
        self.planner = Planner(
            self.index, chunk_blocks=shape.chunk_blocks, workers=shape.workers, shares_loads=shape.prefix_caching,
            clock=time.monotonic, admission=Admission(settings.store_after),
        )  # fmt: skip
        self.planner.growing = True  # until the workers report how much memory they have
        self.late_s = LATE_S
        self._events = Events(chunk_tokens=self._chunk_tokens, salt_bytes=SALT_BYTES) if shape.events else None
        self._measured = Measurements(shape, settings)
        self._counts = self._measured.increments
        self._requests: dict[str, RequestState] = {}
        self._storing: dict[str, Request] = {}
        """Requests with chunks that the planner has not considered yet. A step costs nothing for the other requests."""
        self._orders = Orders()
        self.stopped = False
        """Whether offloading has ended: nothing is loaded or stored any more."""
        self._manager: KVCacheManager
        self._watch: DeviceWatch
        self._borrowed: Borrowed

    def bind(self, manager: KVCacheManager) -> None:
        """Connect to vLLM's KV cache manager, which owns the blocks. Called once, before the first request."""
        self._manager = manager
        self._watch = DeviceWatch(manager.block_pool)
        self._borrowed = Borrowed(manager.block_pool)

    def added(self, request: Request) -> None:
        """Remember a new request."""
        self._requests[request.request_id] = RequestState(request.request_id)

    def match(self, request: Request, computed_tokens: int) -> tuple[int | None, bool]:
        """Return how many tokens beyond ``computed_tokens`` can be loaded, and whether the load is asynchronous.

        The number is None if vLLM should ask again in a later step.
        """
        state = self._requests.get(request.request_id)
        if state is None or self.stopped:
            return 0, False
        state.device_tokens = computed_tokens
        loads = self._keeps and self._shape.loads and not state.gave_up_loading
        if not loads or request.skip_reading_prefix_cache or self.planner.jobs.stuck:
            return 0, False
        keys = self._chunks.keys(state, request, self._chunks.loadable(request))
        chunks = self.planner.match(state, keys, computed_tokens // self._block_tokens)
        if chunks is None:
            return None, False
        tokens = chunks * self._chunk_tokens - computed_tokens
        return (tokens, True) if tokens > 0 else (0, False)

    def allocated(self, request: Request, blocks: KVCacheBlocks, external_tokens: int) -> None:
        """Order the promised load into the blocks that vLLM has allocated to the request."""
        state = self._requests.get(request.request_id)
        if self.stopped or state is None:
            if external_tokens:
                self.refuse(request.request_id)
            return
        if self._keeps and self._shape.stores:
            self._storing[request.request_id] = request
        if not state.has_begun:
            self._begun(state, request, external_tokens)
        if not external_tokens:
            return
        state.loaded_tokens = external_tokens
        first = state.device_tokens // self._block_tokens
        end = first + external_tokens // self._block_tokens
        keys = self._chunks.keys(state, request, -(-end // self._shape.chunk_blocks))
        ids = blocks.get_block_ids()[0]
        self._orders.loads.append(self.planner.load(state, keys, first, ids[first:end]))

    def refuse(self, request_id: str) -> None:
        """Report the load that the request waits for as failed, unless it is ordered: the request computes instead."""
        if not any(job.request_id == request_id for job in self._orders.loads):
            self._orders.refused.append(request_id)

    def orders(self, output: SchedulerOutput) -> Orders:
        """Return the jobs of this step."""
        self._give_up_late()
        for request_id in output.preempted_req_ids or ():
            if (state := self._requests.get(request_id)) is not None:
                self.planner.restarted(state)
        for request_id, request in list(self._storing.items()):
            if not self._may_store():
                break
            if scheduled := output.num_scheduled_tokens.get(request_id):
                self._store(request, request.num_computed_tokens + scheduled)
        return self.queued()

    def queued(self) -> Orders:
        """Return the orders that have not been sent yet."""
        orders, self._orders = self._orders, Orders()
        return orders

    def reported(self, reports: Reports) -> None:
        """Process the workers' reports: memory that became ready, and jobs that ended."""
        if not self.stopped:
            self._measured.memory(reports)
            self.index.grow(min(reports.ready_slots, self._shape.slots))
            self.planner.growing = self.index.slots < self._measured.capacity_slots
        self._counts.reported(reports)
        self.planner.jobs.count_report()
        with ExitStack() as every:  # an error is raised at the end, after every job has freed its blocks
            for job, ok in reversed(reports.ended()):
                every.callback(self._finished, job, ok=ok)

    def ended(self, request: Request) -> dict[str, Any] | None:
        """Forget a request that has ended, but not its open jobs. Returns the report for its response, if requested."""
        state = self._requests.pop(request.request_id, None)
        unfinished = self._storing.pop(request.request_id, None) is not None
        if state is None:
            return None
        if unfinished:
            computed = request.num_computed_tokens - request.num_output_placeholders  # tokens in flight do not count
            missed = self._chunks.keys(state, request, self._chunks.storable(request, computed))[state.considered :]
            self._counts.add("missed_tokens", sum(key not in self.index for key in missed) * self._chunk_tokens)
        if state.has_begun and not self.stopped:
            self.planner.ended(self._chunks.keys(state, request, self._chunks.prompt(request)))
        if not (request.kv_transfer_params or {}).get(REPORT):
            return None
        tiers = {"gpu": state.device_tokens, "cpu": state.loaded_tokens}
        return {"prompt_tokens": request.num_prompt_tokens, "cached_tokens_by_tier": tiers}

    @property
    def busy(self) -> bool:
        """Whether any job is under way."""
        return bool(self._borrowed if self.stopped else self.planner.jobs)

    def reset(self) -> bool:
        """Forget all that is stored; chunks that are being copied are forgotten when their copies end."""
        self.planner.clear()
        self._forget_gone()
        return True

    def failed(self, request_id: str | None = None) -> None:
        """Handle an error that was caught: forget its request, or end offloading if there is none. Never raises."""
        self._counts.add("internal_errors", 1)
        if request_id is None:
            if not self.stopped:
                log.error("nothing is kept in host memory from now on; the engine serves on without")
            self.stop()
        else:
            self._requests.pop(request_id, None)
            self._storing.pop(request_id, None)

    def stop(self) -> None:
        """End offloading: order no more loads or stores. Never raises.

        Copies under way run to their end, and their blocks are freed then.
        """
        if self.stopped:
            return
        self.stopped = True
        self._storing.clear()
        self._measured.capacity_slots = 0
        try:
            self.reset()
        except Exception:
            log.exception("what was kept could not be forgotten, and is not looked up any more")

    def events(self) -> list[KVCacheEvent]:
        """Return the KV events since the last call."""
        return self._events.take() if self._events is not None else []

    def statistics(self) -> Statistics:
        """Return what has changed since the last call, for vLLM's metrics."""
        return self._measured.changes(self.planner, self._watch)

    def _may_store(self) -> bool:  # slow stores must not use up the device's blocks
        return not self.planner.jobs.stuck and len(self._borrowed) <= self._watch.capacity // 2

    def _give_up_late(self) -> None:
        """Let requests compute what takes too long to load, in other blocks.

        The blocks that a late load writes to stay borrowed until the copy has ended, as the blocks of a store do.
        """
        stuck = self.planner.jobs.stuck
        for job in self.planner.jobs.newly_late(self.late_s):
            self._counts.late(job)
            if not stuck:
                log.error("a %s does not end; until it does, nothing is loaded or stored", job.direction.value)
            stuck = True
            if job.direction is Direction.LOAD:
                self._borrowed.keep(job.id, job.blocks)
                self._orders.late.append(job.id)
                if (state := self._requests.get(job.request_id)) is not None:
                    state.loaded_tokens, state.gave_up_loading = 0, True

    def _begun(self, state: RequestState, request: Request, external_tokens: int) -> None:
        self.planner.begun(state)
        device = state.device_tokens
        self._counts.add("lookup_hit_tokens", external_tokens)
        self._counts.add("lookup_miss_tokens", request.num_tokens - device - external_tokens)
        log.info(
            "Reqid: %s, Total tokens %d, kvengine hit tokens: %d, need to load: %d",
            request.request_id, request.num_tokens, device + external_tokens, external_tokens,
        )  # fmt: skip

    def _store(self, request: Request, computed_tokens: int) -> None:
        state = self._requests[request.request_id]
        if (chunks := self._chunks.storable(request, computed_tokens)) > state.considered:
            self._store_chunks(state, request, chunks)
        if not self._decoded and state.considered >= request.num_prompt_tokens // self._chunk_tokens:
            del self._storing[request.request_id]

    def _store_chunks(self, state: RequestState, request: Request, chunks: int) -> None:
        keys = self._chunks.keys(state, request, chunks)
        blocks = self._manager.get_blocks(request.request_id).blocks[0]
        jobs = self.planner.store(state, keys, [block.block_id for block in blocks])
        self._forget_gone()
        if not jobs:
            return
        for job in jobs:
            self._borrowed.keep(job.id, job.blocks)
            self._orders.stores.append(job)
            if self._events is not None:
                self._events.storing(request, keys, self.planner.jobs[job.id].keys)
        log.info(
            "Storing KV cache for %d out of %d tokens for request %s",
            sum(len(job.blocks) for job in jobs) * self._block_tokens, request.num_tokens, request.request_id,
        )  # fmt: skip

    def _finished(self, job: JobId, *, ok: bool) -> None:
        try:
            ended = self.planner.finished(job, ok=ok)
        except BaseException:  # a store may still read them, but offloading ends: nothing is loaded any more
            self._borrowed.give_back(job)
            raise
        if ended is None:
            return
        self._borrowed.give_back(job)
        self._counts.ended(ended)
        if ended.job.direction is Direction.STORE:
            if self._events is not None:
                self._events.stored(ended.keys, frozenset(ended.kept))
        elif not ended.ok and (state := self._requests.get(ended.job.request_id)) is not None:
            state.loaded_tokens = 0
        self._forget_gone()

    def _forget_gone(self) -> None:
        if (gone := self.planner.gone()) and self._events is not None:
            self._events.gone(gone)
