"""The copies that were ordered, until every worker has finished them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from kvengine.copiers.base import Direction, JobId
from kvengine.index import ChunkKey, Slot

LATE_S = 60.0
"""How long a copy may take. A guess: a thousand times what one takes, and hardly a client waits longer."""
REPORTS_TO_BEGIN = 2
"""A step may take long, and the first report after an order may be of the step before."""


class Job(NamedTuple):
    """One request's chunks, to be moved."""

    id: JobId
    request_id: str
    direction: Direction
    slots: list[Slot]
    first: int
    """The first block, counted in the first slot's chunk."""
    blocks: list[int]
    """Of the device, consecutive blocks of those chunks."""


@dataclass(slots=True)
class OpenJob:
    """One that has not ended."""

    job: Job
    keys: list[ChunkKey]
    waiting: int
    """Workers that have not finished it."""
    since: float
    reports: int
    """Of the workers, before it was ordered."""
    begun: float | None = None
    """When every worker had it for sure."""
    ok: bool = True


class Jobs:
    """Those that have not ended, in the order in which they were ordered. Owner: the planner."""

    def __init__(self, workers: int, clock: Callable[[], float]) -> None:
        self._workers = workers
        self._clock = clock
        self._next = 1
        self._open: dict[JobId, OpenJob] = {}
        self._reports = 0
        self._late: set[JobId] = set()

    def order(
        self,
        request_id: str,
        direction: Direction,
        keys: list[ChunkKey],
        slots: list[Slot],
        first: int,
        blocks: list[int],
    ) -> Job:
        """A new one."""
        job = Job(JobId(self._next), request_id, direction, slots, first, blocks)
        self._next += 1
        self._open[job.id] = OpenJob(job, keys, self._workers, self._clock(), self._reports)
        return job

    def heard(self) -> None:
        """The workers have reported: what was ordered two reports ago has begun."""
        self._reports += 1
        for opened in reversed(self._open.values()):
            if opened.begun is not None:
                return
            if self._reports - opened.reports >= REPORTS_TO_BEGIN:
                opened.begun = self._clock()

    def finished(self, job_id: JobId, *, ok: bool) -> OpenJob | None:
        """One worker has finished a job: it, when that was the last one."""
        opened = self._open.get(job_id)
        if opened is None:
            return None
        opened.ok = opened.ok and ok
        opened.waiting -= 1
        if opened.waiting:
            return None
        self._late.discard(job_id)
        return self._open.pop(job_id)

    def grown_late(self, limit_s: float) -> list[Job]:
        """Those that have not ended so long after they began, each once."""
        now, found = self._clock(), []
        for opened in self._open.values():
            if opened.begun is None or now - opened.begun < limit_s:
                break
            if opened.job.id not in self._late:
                self._late.add(opened.job.id)
                found.append(opened.job)
        return found

    @property
    def stuck(self) -> bool:
        """Whether one that is late has not ended."""
        return bool(self._late)

    def __getitem__(self, job: JobId) -> OpenJob:
        """Raises: KeyError when it has ended."""
        return self._open[job]

    def __len__(self) -> int:
        """How many have not ended."""
        return len(self._open)

    def count(self, direction: Direction) -> int:
        """Likewise, in one direction."""
        return sum(opened.job.direction is direction for opened in self._open.values())
