"""The copies that were ordered and that not all workers have finished yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from kvengine.copiers.base import Direction, JobId
from kvengine.index import ChunkKey, Slot

LATE_S = 60.0
"""How long a copy may take before it counts as late. A guess: a thousand times the usual duration, and hardly any
client waits longer."""
REPORTS_TO_BEGIN = 2
"""How many reports the workers send after an order until its job has certainly begun. One is not enough: the first
report after an order may belong to the step before. Reports are counted instead of seconds, since a step may take
long."""


class Job(NamedTuple):
    """An order to copy one request's chunks."""

    id: JobId
    request_id: str
    direction: Direction
    slots: list[Slot]
    first: int
    """The first block's position within the first slot's chunk."""
    blocks: list[int]
    """Block numbers on the device: consecutive blocks of those chunks."""


@dataclass(slots=True)
class OpenJob:
    """A job that has not ended."""

    job: Job
    keys: list[ChunkKey]
    waiting: int
    """The number of workers that have not finished it."""
    since: float
    """When the job was ordered."""
    reports: int
    """How many reports the workers had sent before it was ordered."""
    begun: float | None = None
    """When every worker certainly had the order; None before that."""
    ok: bool = True


class Jobs:
    """The jobs that have not ended, in the order in which they were ordered. Owner: the planner."""

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
        """Create a new open job and return its order for the workers."""
        job = Job(JobId(self._next), request_id, direction, slots, first, blocks)
        self._next += 1
        self._open[job.id] = OpenJob(job, keys, self._workers, self._clock(), self._reports)
        return job

    def count_report(self) -> None:
        """Count a report from the workers: jobs that were ordered ``REPORTS_TO_BEGIN`` reports ago have begun."""
        self._reports += 1
        for opened in reversed(self._open.values()):
            if opened.begun is not None:
                return
            if self._reports - opened.reports >= REPORTS_TO_BEGIN:
                opened.begun = self._clock()

    def finished(self, job_id: JobId, *, ok: bool) -> OpenJob | None:
        """Count one worker's report on a job; return the job once the last worker has reported, else None.

        Also returns None for a job that is not open.
        """
        opened = self._open.get(job_id)
        if opened is None:
            return None
        opened.ok = opened.ok and ok
        opened.waiting -= 1
        if opened.waiting:
            return None
        self._late.discard(job_id)
        return self._open.pop(job_id)

    def newly_late(self, limit_s: float) -> list[Job]:
        """Return the jobs that have run longer than ``limit_s`` since they began, each of them only once."""
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
        """Whether any late job has not ended."""
        return bool(self._late)

    def __getitem__(self, job: JobId) -> OpenJob:
        """Return an open job. Raises: KeyError when it has ended."""
        return self._open[job]

    def __len__(self) -> int:
        """Return how many jobs have not ended."""
        return len(self._open)

    def count(self, direction: Direction) -> int:
        """Return how many jobs in ``direction`` have not ended."""
        return sum(opened.job.direction is direction for opened in self._open.values())
