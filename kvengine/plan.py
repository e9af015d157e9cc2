"""Decides what to load and what to store: block hashes and completed jobs in, jobs out. No vLLM, no bytes.

One ``Planner`` sits beside vLLM's scheduler and is called in each of its steps:

    match ─► (None: ask again) ─► load ┐
                                       ├─► jobs ─► workers ─► finished
    computed ─► store ─────────────────┘

Invariants: a chunk that a job reads or writes is pinned until every worker has finished the job. The chunks that
``match`` counted are still there when ``load`` is called in the same step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kvengine.admission import Admission
from kvengine.copiers.base import Direction, JobId
from kvengine.errors import NoSpace
from kvengine.index import ChunkIndex, ChunkKey
from kvengine.jobs import Job, Jobs
from kvengine.request_state import RequestState

log = logging.getLogger(__name__)

PATIENCE_S = 2.0
"""How long a request waits for another request's load of the same chunks before it computes them itself. A guess: many
times the duration of a load, and far less than a client's timeout."""


class Ended(NamedTuple):
    """A job that all workers have finished."""

    job: Job
    keys: list[ChunkKey]
    kept: list[ChunkKey]
    """The chunks that a lookup finds now."""
    ok: bool
    seconds: float
    """From the order to the last worker's report."""


@dataclass(slots=True)
class Counts:
    """Totals since the start. Units: chunks, unless a field says otherwise."""

    stored: int = 0
    loaded: int = 0
    evicted: int = 0
    no_slot: int = 0
    """Chunks that were not stored because too few slots were free or idle."""
    failed_stores: int = 0
    """Units: jobs."""
    failed_loads: int = 0
    """Units: jobs."""
    waited: int = 0
    """Requests that had to ask again because another request was loading the same chunks."""
    gave_up_waiting: int = 0
    """Requests that stopped waiting and computed what another request was loading."""


class Planner:
    """The loads and stores under way. Owner: the scheduler's thread."""

    def __init__(
        self,
        index: ChunkIndex,
        *,
        chunk_blocks: int,
        workers: int,
        shares_loads: bool,
        clock: Callable[[], float],
        admission: Admission | None = None,
    ) -> None:
        """``shares_loads``: a later request finds on the device what an earlier one loaded (vLLM caches prefixes)."""
        self.index = index
        self.admission = admission or Admission()
        self.counts = Counts()
        self.jobs = Jobs(workers, clock)
        self.growing = False
        """More slots will soon be ready: chunks that find no slot now will be offered again."""
        self._gone: list[ChunkKey] = []
        self._chunk_blocks = chunk_blocks
        self._shares_loads = shares_loads
        self._clock = clock
        self._loading: dict[ChunkKey, int] = {}
        self._epoch = 0  # how often ``clear`` was called

    def match(self, request: RequestState, keys: Sequence[ChunkKey], computed_blocks: int) -> int | None:
        """Return how many leading chunks of the prompt host memory holds, including those that the device holds, too.

        ``computed_blocks``: the prompt's blocks that the device already holds. Returns None if the caller should ask
        again later, because another request is loading the next chunk. A request that has waited for ``PATIENCE_S``
        gets the count of the device's chunks, and computes the others.
        """
        looked_up = (self.index.generation, len(keys), keys[-1] if keys else None)
        if request.looked_up != looked_up:
            request.matched = self.index.match(keys)
            request.looked_up = looked_up
        first = computed_blocks // self._chunk_blocks
        if request.matched <= first:
            return request.matched
        if self._shares_loads and keys[first] in self._loading:
            now = self._clock()
            if request.waits_since is None:
                request.waits_since = now
                self.counts.waited += 1
            if now - request.waits_since < PATIENCE_S:
                return None
            self.counts.gave_up_waiting += not request.gave_up_waiting
            request.gave_up_waiting = True
            return first
        request.waits_since = None
        return request.matched

    def begun(self, request: RequestState) -> None:
        """Note that the request got its first blocks: a ``clear`` before this does not concern what it computes."""
        request.epoch = self._epoch

    def restarted(self, request: RequestState) -> None:
        """Note that the request was preempted and will be computed from its start again."""
        request.epoch = self._epoch
        request.considered = 0

    def load(self, request: RequestState, keys: Sequence[ChunkKey], first_block: int, blocks: list[int]) -> Job:
        """Order a load into the device's ``blocks``, which hold the prompt from block ``first_block`` on.

        Raises: KeyError if one of the chunks is no longer ready.
        """
        first_chunk = first_block // self._chunk_blocks
        last_chunk = -(-(first_block + len(blocks)) // self._chunk_blocks)
        wanted = list(keys[first_chunk:last_chunk])
        slots = self.index.pin(wanted)
        for key in wanted:
            self._loading[key] = self._loading.get(key, 0) + 1
        return self.jobs.order(request.id, Direction.LOAD, wanted, slots, first_block % self._chunk_blocks, blocks)

    def store(self, request: RequestState, keys: Sequence[ChunkKey], blocks: Sequence[int]) -> list[Job]:
        """Order stores for the new chunks among ``keys``, and return their jobs.

        ``keys``: all of the request's chunks that have been computed. ``blocks``: the device's blocks, from the
        prompt's start on. Chunks that were computed before ``begun``, or before a ``clear``, are not stored. While more
        slots are about to be ready, chunks that find no slot stay unconsidered and can be offered again.
        """
        if request.epoch != self._epoch:
            request.considered = len(keys)
            return []
        new = [number for number in range(request.considered, len(keys)) if keys[number] not in self.index]
        if new and self.growing and not self.index.room(len(new)):
            return []
        request.considered = max(request.considered, len(keys))
        new = new[: self.admission.admit([keys[number] for number in new])] if new else new
        jobs = []
        for run in runs(new):
            jobs += self._store_run(request.id, keys, run, blocks)
        return jobs

    def gone(self) -> list[ChunkKey]:
        """Return the chunks that lookups used to find and that were dropped since the last call."""
        gone, self._gone = self._gone, []
        return gone

    def clear(self) -> None:
        """Forget all chunks: those stored, those being stored, and those that requests have computed until now."""
        self._drop(self.index.clear())
        self._epoch += 1

    def ended(self, keys: Sequence[ChunkKey]) -> None:
        """Note that a request has ended; its open jobs go on.

        ``keys``: the chunks that it used, whether loaded, found on the device or computed. They count as used until
        now.
        """
        self.index.refresh(reversed(keys))

    def finished(self, job_id: JobId, *, ok: bool) -> Ended | None:
        """Count one worker's report on a job; return the result once the last worker has reported, else None."""
        opened = self.jobs.finished(job_id, ok=ok)
        if opened is None:
            return None
        backwards = opened.keys[::-1]  # the prompt's first chunk becomes the most recent
        kept = opened.keys if opened.ok else []
        if opened.job.direction is Direction.LOAD:
            for key in opened.keys:
                if self._loading[key] == 1:
                    del self._loading[key]
                else:
                    self._loading[key] -= 1
            self.index.unpin(backwards)
            if opened.ok:
                self.counts.loaded += len(backwards)
            else:
                self.counts.failed_loads += 1
                # Chunks that other jobs are loading now are dropped, too.
                self._drop([key for key in backwards if self.index.forget(key)])
        elif opened.ok:
            kept = self.index.commit(opened.keys)
            self.index.unpin(backwards)
            self.counts.stored += len(kept)
        else:
            self.index.drop(opened.keys)
            self.counts.failed_stores += 1
        return Ended(opened.job, opened.keys, kept, opened.ok, self._clock() - opened.since)

    def _drop(self, keys: list[ChunkKey]) -> None:
        self.counts.evicted += len(keys)
        self._gone += keys

    def _store_run(self, request_id: str, keys: Sequence[ChunkKey], run: list[int], blocks: Sequence[int]) -> list[Job]:
        wanted = [keys[number] for number in run]
        try:
            slots, evicted = self.index.insert(wanted)
        except NoSpace:
            self.counts.no_slot += len(wanted)
            return []
        self._drop(evicted)
        begin, end = run[0] * self._chunk_blocks, (run[-1] + 1) * self._chunk_blocks
        return [self.jobs.order(request_id, Direction.STORE, wanted, slots, 0, list(blocks[begin:end]))]


def runs(numbers: Sequence[int]) -> list[list[int]]:
    """Split ascending ``numbers`` into runs of consecutive numbers."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][-1] + 1 == number:
            found[-1].append(number)
        else:
            found.append([number])
    return found
