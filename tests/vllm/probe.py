"""The connector with two additions: it compares loaded bytes with stored ones, and accepts injected faults.

It is loaded like a user's connector, by ``kv_connector_module_path``. A test calls the workers through ``LLM``'s
``collective_rpc`` (``worker_extension_cls`` adds ``Probing`` to vLLM's worker class), and reaches the scheduler's side
by a request's ``kv_transfer_params``.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from typing_extensions import override

from kvengine.arena import Arena
from kvengine.connector import KVEngineConnector
from kvengine.connector.messages import Orders
from kvengine.connector.scheduler import Scheduler
from kvengine.connector.worker import Worker
from kvengine.copiers import Copier, Direction, Done
from kvengine.copiers.base import JobId
from kvengine.cuda.driver import Driver
from kvengine.jobs import Job
from kvengine.layout import Fragments

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.request import Request

NO_MEMORY = "PROBE_NO_MEMORY"
"""An environment variable: if set, no host memory is available when a worker allocates it."""
SPARE_BYTES = 64 << 20
LINGER_S = 1.0
FAULT = "fault"
"""A key of a request's ``kv_transfer_params``: the name of the scheduler's method that fails for this request."""


class Broken(Exception):
    """An error that a test injects."""


class Deadly:
    """Takes the place of addresses, and ends the thread that reads it."""

    def tolist(self) -> list[int]:
        raise SystemExit


class FragileCopier(Copier):
    """Another copier, with faults by direction.

    ``faults`` has "tear" to copy half of each fragment, "hold" and "linger" to hold jobs back (the latter for a while),
    and "die" to end the copier's thread.
    """

    def __init__(self, copier: Copier) -> None:
        self.faults: dict[str, str] = {}
        self.held: list[tuple[JobId, Direction, Fragments]] = []
        self._copier = copier
        self._torn: set[JobId] = set()
        self._lingers_until: float | None = None

    @override
    def submit(self, job: JobId, direction: Direction, fragments: Fragments) -> None:
        fault = self.faults.get(direction.value)
        if fault in ("hold", "linger"):
            self.held.append((job, direction, fragments))
            if fault == "linger":
                self._lingers_until = time.monotonic() + LINGER_S
            return
        if fault == "tear":  # half of each fragment is copied
            self._torn.add(job)
            fragments = Fragments(*(each[: len(each) // 2] for each in fragments))
        elif fault == "die":
            fragments = fragments._replace(device=Deadly())  # type: ignore[arg-type]
        self._copier.submit(job, direction, fragments)

    @override
    def poll(self) -> list[Done]:
        if self._lingers_until is not None and time.monotonic() > self._lingers_until:
            self.release()
        return [each._replace(ok=each.ok and each.job not in self._torn) for each in self._copier.poll()]

    def release(self) -> None:
        """Begin the jobs that were held back."""
        held, self.held = self.held, []
        self._lingers_until = None
        for each in held:
            self._copier.submit(*each)

    @override
    def close(self) -> None:
        self.release()
        self._copier.close()


class ProbedWorker(Worker):
    """Records the bytes of each stored block, and compares them with the device's when a load has ended."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.copier: FragileCopier
        self.stored: dict[tuple[int, int], bytes] = {}
        self.compared = 0
        self.different = 0
        self._loading: dict[JobId, Job] = {}

    @override
    def register(self, caches: dict[str, torch.Tensor]) -> None:
        if NO_MEMORY not in os.environ:
            super().register(caches)
            return
        before = resource.getrlimit(resource.RLIMIT_AS)
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + SPARE_BYTES, before[1]))
        try:
            super().register(caches)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)

    @override
    def make_copier(self, driver: Driver | None, arena: Arena) -> Copier:
        self.copier = FragileCopier(super().make_copier(driver, arena))
        return self.copier

    @override
    def store(self, orders: Orders) -> None:
        for job in orders.stores:
            self.stored.update(self._found(job))
        super().store(orders)

    @override
    def load(self, orders: Orders) -> None:
        self._loading.update({job.id: job for job in orders.loads})
        super().load(orders)

    @override
    def _report(self, job: JobId, *, ok: bool) -> None:
        loaded = self._loading.pop(job, None)
        if ok and loaded is not None:
            for place, digest in self._found(loaded).items():
                self.compared += 1
                self.different += digest != self.stored[place]
        super()._report(job, ok=ok)

    def _found(self, job: Job) -> dict[tuple[int, int], bytes]:
        """Return the device's bytes by slot and block within it, read from vLLM's tensors without our own code."""
        found = {}
        for number, block in enumerate(job.blocks, start=job.first):
            digest = hashlib.sha256()
            for cache in self._caches:
                digest.update(cache[block].contiguous().view(-1).view(torch.uint8).numpy().tobytes())
            chunk, within = divmod(number, self._shape.chunk_blocks)
            found[job.slots[chunk], within] = digest.digest()
        return found


class ProbedScheduler(Scheduler):
    """A scheduler's side that fails in the method that a request names."""

    @override
    def match(self, request: Request, computed_tokens: int) -> tuple[int | None, bool]:
        self._break(request, "match")
        return super().match(request, computed_tokens)

    @override
    def allocated(self, request: Request, blocks: KVCacheBlocks, external_tokens: int) -> None:
        self._break(request, "allocated")
        super().allocated(request, blocks, external_tokens)

    @staticmethod
    def _break(request: Request, where: str) -> None:
        if (request.kv_transfer_params or {}).get(FAULT) == where:
            raise Broken(where)


class ProbedConnector(KVEngineConnector):
    """The connector that tests name in ``kv_connector``."""

    scheduler_type = ProbedScheduler
    worker_type = ProbedWorker


class Probing:
    """The methods that tests call in a worker."""

    def kv_bytes(self) -> tuple[int, int]:
        """Return how many loaded blocks were compared, and how many of them differ from what was stored."""
        worker = probed()
        return worker.compared, worker.different

    def kv_faults(self, ranks: list[int] | None = None, **faults: str) -> None:
        """Set the faults by direction, until the next call, for the workers of these ``ranks`` or for all."""
        if ranks is None or self.rank in ranks:  # type: ignore[attr-defined]
            probed().copier.faults = faults

    def kv_held(self) -> int:
        """Return how many jobs are held back."""
        return len(probed().copier.held)

    def kv_release(self) -> None:
        """Begin the jobs that are held back."""
        probed().copier.release()

    def kv_flip(self, offset: int) -> int:
        """Change one byte in every stored slot, and return the number of slots."""
        worker = probed()
        arena = worker._arena
        assert arena is not None
        slots = {slot for slot, _ in worker.stored}
        for slot in slots:
            memory = (ctypes.c_uint8 * arena.slot_bytes).from_address(arena.address + slot * arena.slot_bytes)
            np.ctypeslib.as_array(memory)[offset % arena.slot_bytes] ^= 0x40
        return len(slots)

    def kv_close(self) -> int:
        """Call ``kvengine.shutdown()`` in the worker."""
        import kvengine

        return kvengine.shutdown()


def probed() -> ProbedWorker:
    """Return the connector of this process."""
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    group = get_kv_transfer_group()
    for each in getattr(group, "_connectors", [group]):
        worker = getattr(each, "_worker", None)
        if isinstance(worker, ProbedWorker):
            return worker
    raise LookupError("no probed connector")
