"""Decides what is loaded and stored: prompts and completions in, jobs out. Knows neither vLLM nor any byte.

One ``Planner`` sits beside vLLM's scheduler, and is asked in its steps:

    match ─► (None: ask again) ─► load ┐
                                       ├─► jobs ─► workers ─► finished
    computed ─► store ─────────────────┘

Invariants: a chunk that a job reads or writes is pinned until every worker has finished the job; what ``match``
promised is there when ``load`` is called in the same step.
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

log = logging.getLogger(__name__)

PATIENCE_S = 2.0
"""How long a request waits for another one's load of the same chunks before it computes them. A guess: many times a
load, and far less than a client's patience."""


class Ended(NamedTuple):
    """A job that all workers have finished."""

    job: Job
    keys: list[ChunkKey]
    kept: list[ChunkKey]
    """Those that can be found now."""
    ok: bool
    seconds: float
    """From the order to the last worker's report."""


@dataclass(slots=True)
class Counts:
    """Since the start. Units: chunks, unless the name says otherwise."""

    stored: int = 0
    loaded: int = 0
    evicted: int = 0
    no_slot: int = 0
    """Not stored, for every slot was pinned."""
    failed_stores: int = 0
    """Jobs."""
    failed_loads: int = 0
    waited: int = 0
    """Requests that were told to ask again, since another one was loading the same."""
    gave_up_waiting: int = 0
    """Requests that computed what another one was loading."""


@dataclass(slots=True)
class _Known:
    """What the planner remembers of a request."""

    looked_up: tuple[int, int, ChunkKey | None] = (-1, 0, None)
    """The index's generation, how many chunks, and the last of them."""
    matched: int = 0
    """Chunks, of that lookup."""
    considered: int = 0
    """Chunks that were stored, or need not be."""
    waits_since: float | None = None
    gave_up: bool = False
    outdated: bool = False
    """Computed, at least in part, before everything was to be forgotten."""


class Planner:
    """Owner: the scheduler's thread."""

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
        """``shares_loads``: what one request loaded the next one finds on the device (vLLM caches prefixes)."""
        self.index = index
        self.admission = admission or Admission()
        self.counts = Counts()
        self.jobs = Jobs(workers, clock)
        self.growing = False
        """More slots will be there soon: what finds none is offered again."""
        self._gone: list[ChunkKey] = []
        self._chunk_blocks = chunk_blocks
        self._shares_loads = shares_loads
        self._clock = clock
        self._loading: dict[ChunkKey, int] = {}
        self._requests: dict[str, _Known] = {}

    def match(self, request_id: str, keys: Sequence[ChunkKey], computed_blocks: int) -> int | None:
        """How many chunks of the prompt, from its start, can be had, those on the device included.

        None to be asked again, while another request loads the next one.
        """
        known = self._requests.setdefault(request_id, _Known())
        looked_up = (self.index.generation, len(keys), keys[-1] if keys else None)
        if known.looked_up != looked_up:
            known.matched = self.index.match(keys)
            known.looked_up = looked_up
        first = computed_blocks // self._chunk_blocks
        if known.matched <= first:
            return known.matched
        if self._shares_loads and keys[first] in self._loading:
            now = self._clock()
            if known.waits_since is None:
                known.waits_since = now
                self.counts.waited += 1
            if now - known.waits_since < PATIENCE_S:
                return None
            self.counts.gave_up_waiting += not known.gave_up
            known.gave_up = True
            return first
        known.waits_since = None
        return known.matched

    def load(self, request_id: str, keys: Sequence[ChunkKey], first_block: int, blocks: list[int]) -> Job:
        """Load ``blocks`` of the device, which are those of the prompt from ``first_block`` on.

        Raises: KeyError when a chunk is not there any more.
        """
        first_chunk = first_block // self._chunk_blocks
        last_chunk = -(-(first_block + len(blocks)) // self._chunk_blocks)
        wanted = list(keys[first_chunk:last_chunk])
        slots = self.index.pin(wanted)
        for key in wanted:
            self._loading[key] = self._loading.get(key, 0) + 1
        return self.jobs.order(request_id, Direction.LOAD, wanted, slots, first_block % self._chunk_blocks, blocks)

    def store(self, request_id: str, keys: Sequence[ChunkKey], blocks: Sequence[int]) -> list[Job]:
        """Store the chunks ``keys``, all that are computed, as far as they are new; ``blocks`` are the device's, from
        the prompt's start on."""
        known = self._requests.setdefault(request_id, _Known())
        if known.outdated:
            known.considered = len(keys)
            return []
        new = [number for number in range(known.considered, len(keys)) if keys[number] not in self.index]
        if new and self.growing and not self.index.room(len(new)):
            return []
        known.considered = max(known.considered, len(keys))
        new = new[: self.admission.admit([keys[number] for number in new])] if new else new
        jobs = []
        for run in runs(new):
            jobs += self._store_run(request_id, keys, run, blocks)
        return jobs

    def considered(self, request_id: str) -> int:
        """How many of the request's chunks need not be offered to ``store`` again."""
        return self._requests[request_id].considered

    def gone(self) -> list[ChunkKey]:
        """What is not held any more, of what was found before, since the last call."""
        gone, self._gone = self._gone, []
        return gone

    def clear(self) -> None:
        """Forget everything: what is stored, what is being stored, and what requests that were seen have computed."""
        self._drop(self.index.clear())
        for known in self._requests.values():
            known.outdated = True

    def begun(self, request_id: str) -> None:
        """The request has its first blocks: from now on, a ``clear`` is about what it computes."""
        self._requests.setdefault(request_id, _Known()).outdated = False

    def restarted(self, request_id: str) -> None:
        """The request was preempted, and is computed from its start again."""
        known = self._requests.get(request_id)
        if known is not None:
            known.considered = 0
            known.outdated = False

    def ended(self, request_id: str, keys: Sequence[ChunkKey] = ()) -> None:
        """Forget the request, which has used ``keys`` until now, wherever it had them from. Its jobs go on."""
        self._requests.pop(request_id, None)
        self.index.refresh(reversed(keys))

    def finished(self, job_id: JobId, *, ok: bool) -> Ended | None:
        """One worker has finished a job; the result when it was the last one."""
        opened = self.jobs.finished(job_id, ok=ok)
        if opened is None:
            return None
        backwards = opened.keys[::-1]  # what others build upon is used last
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
                self._drop([key for key in backwards if self.index.forget(key)])  # also those that others load now
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
    """Ascending ``numbers`` as stretches without a gap."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][-1] + 1 == number:
            found[-1].append(number)
        else:
            found.append([number])
    return found
