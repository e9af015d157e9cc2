"""The scheduler's side: vLLM's requests and blocks, as the planner's chunks and jobs."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from kvengine.connector.geometry import Geometry
from kvengine.connector.messages import Orders, Reports
from kvengine.copiers.base import Direction, JobId
from kvengine.index import ChunkIndex, ChunkKey
from kvengine.plan import Job, Planner
from kvengine.settings import Settings

if TYPE_CHECKING:
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
    from vllm.v1.core.kv_cache_utils import KVCacheBlock
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.request import Request

log = logging.getLogger(__name__)


class Scheduler:
    """Owner: the engine's thread."""

    def __init__(self, shape: Geometry, settings: Settings) -> None:
        self._shape = shape
        self._settings = settings
        self._block_tokens = shape.block_tokens
        self._chunk_blocks = shape.chunk_blocks
        self._salt = shape.salt
        self.index = ChunkIndex(0)
        self.planner = Planner(
            self.index,
            chunk_blocks=shape.chunk_blocks,
            workers=shape.workers,
            shares_loads=shape.prefix_caching,
            clock=time.monotonic,
        )
        self._requests: dict[str, Request] = {}
        self._keys: dict[str, list[ChunkKey]] = {}
        self._promised: dict[str, int] = {}
        """Tokens that were on the device when a load was promised, by request."""
        self._orders = Orders()
        self._borrowed: dict[JobId, list[KVCacheBlock]] = {}
        self._manager: KVCacheManager | None = None

    def bind(self, manager: KVCacheManager) -> None:
        """Whose blocks they are."""
        self._manager = manager

    def added(self, request: Request) -> None:
        """A request has come."""
        self._requests[request.request_id] = request

    def match(self, request: Request, computed_tokens: int) -> tuple[int | None, bool]:
        """How many tokens beyond ``computed_tokens`` can be loaded; None to be asked again."""
        # One token is left to compute, or there would be nothing to sample from.
        usable = (request.num_tokens - 1) // self._block_tokens
        keys = self._chunks(request, usable // self._chunk_blocks)
        chunks = self.planner.match(request.request_id, keys, computed_tokens // self._block_tokens)
        if chunks is None:
            return None, False
        tokens = chunks * self._chunk_blocks * self._block_tokens - computed_tokens
        if tokens <= 0:
            return 0, False
        self._promised[request.request_id] = computed_tokens
        return tokens, True

    def allocated(self, request: Request, blocks: KVCacheBlocks, external_tokens: int) -> None:
        """vLLM has given the request its blocks; load what was promised."""
        if not external_tokens:
            return
        first = self._promised.pop(request.request_id) // self._block_tokens
        end = first + external_tokens // self._block_tokens
        keys = self._chunks(request, -(-end // self._chunk_blocks))
        ids = blocks.get_block_ids()[0]
        self._orders.loads.append(self.planner.load(request.request_id, keys, first, ids[first:end]))

    def orders(self, output: SchedulerOutput) -> Orders:
        """The jobs of this step."""
        for request_id in output.preempted_req_ids or ():
            self.planner.restarted(request_id)
        for request_id, scheduled in output.num_scheduled_tokens.items():
            request = self._requests.get(request_id)
            if request is not None:
                self._store(request, request.num_computed_tokens + scheduled)
        orders, self._orders = self._orders, Orders()
        return orders

    def reported(self, reports: Reports) -> None:
        """What the workers have finished."""
        self.index.grow(min(reports.ready_slots, self._shape.slots))
        for counts, ok in ((reports.finished, True), (reports.failed, False)):
            for job, count in counts.items():
                for _ in range(count):
                    ended = self.planner.finished(job, ok=ok)
                    if ended is not None and ended.job.direction is Direction.STORE:
                        self._give_back(job)

    def gone(self, request: Request) -> None:
        """The request has ended; its jobs go on."""
        self._requests.pop(request.request_id, None)
        self._keys.pop(request.request_id, None)
        self._promised.pop(request.request_id, None)
        self.planner.ended(request.request_id)

    @property
    def busy(self) -> bool:
        """Whether a job is under way."""
        return self.planner.busy

    def reset(self) -> bool:
        """Forget what is kept and not in use."""
        self.planner.clear()
        return True

    def _store(self, request: Request, computed_tokens: int) -> None:
        computed = min(computed_tokens, request.num_prompt_tokens)
        chunks = min(computed // self._block_tokens, len(request.block_hashes)) // self._chunk_blocks
        keys = self._chunks(request, chunks)
        manager = self._manager
        if manager is None or not chunks:
            return
        blocks = manager.get_blocks(request.request_id).blocks[0]
        ids = [block.block_id for block in blocks]
        for job in self.planner.store(request.request_id, keys, ids):
            self._borrow(job, blocks)
            self._orders.stores.append(job)

    def _borrow(self, job: Job, blocks: list[KVCacheBlock]) -> None:
        """Keep the device's blocks until they are copied, whatever becomes of the request."""
        wanted = set(job.blocks)
        mine = [block for block in blocks if block.block_id in wanted]
        self._pool.touch(mine)
        self._borrowed[job.id] = mine

    def _give_back(self, job: JobId) -> None:
        self._pool.free_blocks(reversed(self._borrowed.pop(job)))

    @property
    def _pool(self) -> BlockPool:
        assert self._manager is not None  # noqa: S101 - bound before the first request
        return self._manager.block_pool

    def _chunks(self, request: Request, chunks: int) -> list[ChunkKey]:
        """The keys of the first ``chunks`` chunks. A chunk's is its last block's hash, which stands for all before."""
        keys = self._keys.setdefault(request.request_id, [])
        hashes, step = request.block_hashes, self._chunk_blocks
        for number in range(len(keys), chunks):
            keys.append(ChunkKey(self._salt + hashes[(number + 1) * step - 1]))
        return keys[:chunks]
