"""The scheduler's side: vLLM's requests and blocks, as the planner's chunks and jobs."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvengine.admission import Admission
from kvengine.connector.device_watch import DeviceWatch
from kvengine.connector.events import Events
from kvengine.connector.gauges import tier_gauges
from kvengine.connector.geometry import SALT_BYTES, Geometry
from kvengine.connector.messages import Orders, Reports
from kvengine.connector.statistics import Statistics
from kvengine.connector.tally import Tally
from kvengine.copiers.base import Direction, JobId
from kvengine.index import ChunkIndex, ChunkKey
from kvengine.plan import Job, Planner
from kvengine.policies import POLICIES
from kvengine.settings import Settings

if TYPE_CHECKING:
    from vllm.distributed.kv_events import KVCacheEvent
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
    from vllm.v1.core.kv_cache_utils import KVCacheBlock
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.request import Request

log = logging.getLogger(__name__)

REPORT = "kvengine_report"
"""In a request's ``kv_transfer_params``: true asks for the prompt's tokens by tier in the response's."""


@dataclass(slots=True)
class _Known:
    """A request that has not ended."""

    request: Request
    keys: list[ChunkKey] = field(default_factory=list)
    """Of its chunks, as far as anybody asked."""
    device_tokens: int = 0
    """Found on the device when it was last matched."""
    loaded_tokens: int = 0
    admitted: bool = False


class Scheduler:
    """Owner: the engine's thread.

    An error of ours must not take vLLM's engine down. One in ``match``, which changes nothing, costs its request what
    is kept. After any other one nobody knows what is true: ``stop`` ends offloading, and the engine serves on.
    """

    def __init__(self, shape: Geometry, settings: Settings) -> None:
        self._shape = shape
        self._settings = settings
        self._block_tokens = shape.block_tokens
        self._chunk_blocks = shape.chunk_blocks
        self._chunk_tokens = shape.block_tokens * shape.chunk_blocks
        self._keeps = settings.local_cpu
        self.index = ChunkIndex(0, POLICIES[settings.eviction_policy]())
        self.planner = Planner(
            self.index,
            chunk_blocks=shape.chunk_blocks,
            workers=shape.workers,
            shares_loads=shape.prefix_caching,
            clock=time.monotonic,
            admission=Admission(settings.store_after),
        )
        self._events = Events(chunk_tokens=self._chunk_tokens, salt_bytes=SALT_BYTES) if shape.events else None
        self._tally = Tally()
        self._told: dict[str, Any] = {}
        self._requests: dict[str, _Known] = {}
        self._orders = Orders()
        self._borrowed: dict[JobId, list[KVCacheBlock]] = {}
        self._capacity_slots = 0
        self._stopped = False
        self._manager: KVCacheManager
        self._watch: DeviceWatch

    def bind(self, manager: KVCacheManager) -> None:
        """Whose blocks they are; called once, before the first request."""
        self._manager = manager
        self._watch = DeviceWatch(manager.block_pool)

    def added(self, request: Request) -> None:
        """A request has come."""
        self._requests[request.request_id] = _Known(request)

    def match(self, request: Request, computed_tokens: int) -> tuple[int | None, bool]:
        """How many tokens beyond ``computed_tokens`` can be loaded; None to be asked again."""
        known = self._requests.get(request.request_id)
        if known is None or self._stopped:
            return 0, False
        known.device_tokens = computed_tokens
        if not (self._keeps and self._shape.loads):
            return 0, False
        # One token is left to compute, or there would be nothing to sample from.
        usable = (request.num_tokens - 1) // self._block_tokens
        keys = self._chunks(known, usable // self._chunk_blocks)
        chunks = self.planner.match(request.request_id, keys, computed_tokens // self._block_tokens)
        if chunks is None:
            return None, False
        tokens = chunks * self._chunk_tokens - computed_tokens
        return (tokens, True) if tokens > 0 else (0, False)

    def allocated(self, request: Request, blocks: KVCacheBlocks, external_tokens: int) -> None:
        """vLLM has given the request its blocks; load what was promised."""
        known = self._requests.get(request.request_id)
        if self._stopped or known is None:
            if external_tokens:
                self.refuse(request.request_id)
            return
        if not known.admitted:
            self._admitted(known, external_tokens)
        if not external_tokens:
            return
        known.loaded_tokens = external_tokens
        first = known.device_tokens // self._block_tokens
        end = first + external_tokens // self._block_tokens
        keys = self._chunks(known, -(-end // self._chunk_blocks))
        ids = blocks.get_block_ids()[0]
        self._orders.loads.append(self.planner.load(request.request_id, keys, first, ids[first:end]))

    def refuse(self, request_id: str) -> None:
        """The load that the request waits for is not ordered: it computes."""
        if not any(job.request_id == request_id for job in self._orders.loads):
            self._orders.refused.append(request_id)

    def orders(self, output: SchedulerOutput) -> Orders:
        """The jobs of this step."""
        for request_id in output.preempted_req_ids or ():
            self.planner.restarted(request_id)
        if self._keeps and self._shape.stores and not self._stopped:
            for request_id, scheduled in output.num_scheduled_tokens.items():
                known = self._requests.get(request_id)
                if known is not None:
                    self._store(known, known.request.num_computed_tokens + scheduled)
        return self.queued()

    def queued(self) -> Orders:
        """What is ordered and not yet sent."""
        orders, self._orders = self._orders, Orders()
        return orders

    def reported(self, reports: Reports) -> None:
        """What the workers have finished."""
        if not self._stopped:
            self._capacity_slots = min(reports.capacity_slots, self._shape.slots)
            self.index.grow(min(reports.ready_slots, self._shape.slots))
        self._tally.reported(reports)
        for counts, ok in ((reports.finished, True), (reports.failed, False)):
            for job, count in counts.items():
                for _ in range(count):
                    self._finished(job, ok=ok)

    def ended(self, request: Request) -> dict[str, Any] | None:
        """The request has ended; its jobs go on. What its response says of it, where that was asked for."""
        known = self._requests.pop(request.request_id, None)
        self.planner.ended(request.request_id)
        if known is None or not (request.kv_transfer_params or {}).get(REPORT):
            return None
        tiers = {"gpu": known.device_tokens, "cpu": known.loaded_tokens}
        return {"prompt_tokens": request.num_prompt_tokens, "cached_tokens_by_tier": tiers}

    @property
    def busy(self) -> bool:
        """Whether a job is under way."""
        return bool(self._borrowed) if self._stopped else self.planner.busy

    def reset(self) -> bool:
        """Forget all that is kept; what is being copied now is forgotten when that has ended."""
        self.planner.clear()
        self._forget_gone()
        return True

    def failed(self, request_id: str | None = None) -> None:
        """An error was caught: forget the request, or without one stop. Never raises."""
        self._tally.add("internal_errors", 1)
        if request_id is None:
            if not self._stopped:
                log.error("nothing is kept in host memory from now on; the engine serves on without")
            self.stop()
        else:
            self._requests.pop(request_id, None)

    def stop(self) -> None:
        """Load and store nothing any more. What is under way ends, and its blocks are given back. Never raises."""
        if self._stopped:
            return
        self._stopped = True
        self._capacity_slots = 0
        try:
            self.reset()
        except Exception:
            log.exception("what was kept could not be forgotten, and is not looked up any more")

    def events(self) -> list[KVCacheEvent]:
        """What became of chunks since the last call."""
        return self._events.take() if self._events is not None else []

    def statistics(self) -> Statistics:
        """What has changed since the last call."""
        counts, tally = self.planner.counts, self._tally
        for name, chunks in (
            ("stored_tokens", counts.stored),
            ("loaded_tokens", counts.loaded),
            ("evicted_tokens", counts.evicted),
            ("no_slot_tokens", counts.no_slot),
            ("deferred_tokens", self.planner.admission.deferred),
        ):
            tally.upto(name, chunks * self._chunk_tokens)
        tally.upto("waits_given_up", counts.gave_up_waiting)
        told = tally.take()
        gauges = tier_gauges(self._shape, self._settings, self._watch, self.index, self._capacity_slots)
        state = {"gauges": gauges, "open_jobs": {d.value: self.planner.open_jobs(d) for d in Direction}}
        if not told and state == self._told:
            return Statistics()
        self._told = state
        return Statistics(data=told | state)

    def _admitted(self, known: _Known, external_tokens: int) -> None:
        known.admitted = True
        request, device = known.request, known.device_tokens
        self._tally.add("lookup_hit_tokens", external_tokens)
        self._tally.add("lookup_miss_tokens", request.num_tokens - device - external_tokens)
        log.info(
            "Reqid: %s, Total tokens %d, kvengine hit tokens: %d, need to load: %d",
            request.request_id, request.num_tokens, device + external_tokens, external_tokens,
        )  # fmt: skip

    def _store(self, known: _Known, computed_tokens: int) -> None:
        request = known.request
        end = computed_tokens if self._settings.store_decode else min(computed_tokens, request.num_prompt_tokens)
        chunks = min(end // self._block_tokens, len(request.block_hashes)) // self._chunk_blocks
        if not chunks:
            return
        keys = self._chunks(known, chunks)
        blocks = self._manager.get_blocks(request.request_id).blocks[0]
        jobs = self.planner.store(request.request_id, keys, [block.block_id for block in blocks])
        self._forget_gone()
        if not jobs:
            return
        for job in jobs:
            self._borrow(job, blocks)
            self._orders.stores.append(job)
            if self._events is not None:
                self._events.storing(request, keys, self.planner.keys_of(job.id))
        log.info(
            "Storing KV cache for %d out of %d tokens for request %s",
            sum(len(job.blocks) for job in jobs) * self._block_tokens, request.num_tokens, request.request_id,
        )  # fmt: skip

    def _finished(self, job: JobId, *, ok: bool) -> None:
        try:
            ended = self.planner.finished(job, ok=ok)
        except BaseException:
            self._give_back(job)  # should anybody write them while they are stored: nothing is loaded after this
            raise
        if ended is None:
            return
        self._give_back(job)
        self._tally.ended(ended)
        if ended.job.direction is Direction.STORE:
            if self._events is not None:
                self._events.stored(ended.keys, frozenset(ended.kept))
        elif not ended.ok:
            known = self._requests.get(ended.job.request_id)
            if known is not None:
                known.loaded_tokens = 0
        self._forget_gone()

    def _give_back(self, job: JobId) -> None:
        """The device's blocks that a store has read; does nothing the second time."""
        self._manager.block_pool.free_blocks(reversed(self._borrowed.pop(job, [])))

    def _forget_gone(self) -> None:
        gone = self.planner.gone()
        if gone and self._events is not None:
            self._events.gone(gone)

    def _borrow(self, job: Job, blocks: list[KVCacheBlock]) -> None:
        """Keep the device's blocks until they are copied, whatever becomes of the request."""
        wanted = set(job.blocks)
        mine = [block for block in blocks if block.block_id in wanted]
        self._manager.block_pool.touch(mine)
        self._borrowed[job.id] = mine

    def _chunks(self, known: _Known, chunks: int) -> list[ChunkKey]:
        """The keys of the first ``chunks`` chunks. A chunk's is its last block's hash, which stands for all before."""
        keys, hashes, step, salt = known.keys, known.request.block_hashes, self._chunk_blocks, self._shape.salt
        for number in range(len(keys), chunks):
            keys.append(ChunkKey(salt + hashes[(number + 1) * step - 1]))
        return keys[:chunks]
