"""Counts what the scheduler's side and the workers have done since vLLM last collected statistics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kvengine.connector.messages import Reports
from kvengine.connector.statistics import DIRECTIONS, JOB_COUNTERS
from kvengine.copiers.base import Direction
from kvengine.jobs import Job
from kvengine.plan import Ended, Planner


@dataclass(slots=True)
class Tally:
    """Sums since the last ``take``. Counters that other objects keep since the start are recorded as differences."""

    counters: dict[str, float] = field(default_factory=dict)
    jobs: dict[str, dict[str, float]] = field(default_factory=lambda: {name: {} for name in JOB_COUNTERS})
    job_seconds: dict[str, list[float]] = field(default_factory=lambda: {way: [] for way in DIRECTIONS})
    before: dict[str, float] = field(default_factory=dict)
    """The latest total of each counter that is kept since the start."""

    def add(self, name: str, value: float) -> None:
        """Add ``value`` to a counter."""
        self.counters[name] = self.counters.get(name, 0) + value

    def upto(self, name: str, total: float) -> None:
        """Record that a counter's total since the start is now ``total``."""
        self.add(name, total - self.before.get(name, 0))
        self.before[name] = total

    def planned(self, planner: Planner, chunk_tokens: int) -> None:
        """Record the planner's counts."""
        counts = planner.counts
        self.upto("stored_tokens", counts.stored * chunk_tokens)
        self.upto("loaded_tokens", counts.loaded * chunk_tokens)
        self.upto("evicted_tokens", counts.evicted * chunk_tokens)
        self.upto("no_slot_tokens", counts.no_slot * chunk_tokens)
        self.upto("deferred_tokens", planner.admission.deferred * chunk_tokens)
        self.upto("waits", counts.waited)
        self.upto("waits_given_up", counts.gave_up_waiting)

    def ended(self, ended: Ended) -> None:
        """Count a job that has ended."""
        way = ended.job.direction.value
        self._job("jobs", way, 1)
        if not ended.ok:
            self._job("failed_jobs", way, 1)
        self.job_seconds[way].append(ended.seconds)

    def late(self, job: Job) -> None:
        """Count a job that takes too long."""
        self._job("late_jobs", job.direction.value, 1)

    def reported(self, reports: Reports) -> None:
        """Record what the workers have copied."""
        for direction in Direction:
            way = direction.value
            if moved := reports.copied_bytes.get(way):
                self._job("copied_bytes", way, moved)
                self._job("copy_seconds", way, reports.copy_seconds.get(way, 0.0))

    def take(self) -> dict[str, Any]:
        """Return everything that is not zero, and start again from zero."""
        told: dict[str, Any] = {
            "counters": {name: value for name, value in self.counters.items() if value},
            "jobs": {name: by_way for name, by_way in self.jobs.items() if by_way},
            "job_seconds": {way: several for way, several in self.job_seconds.items() if several},
        }
        self.counters = {}
        self.jobs = {name: {} for name in JOB_COUNTERS}
        self.job_seconds = {way: [] for way in DIRECTIONS}
        return {name: value for name, value in told.items() if value}

    def _job(self, name: str, way: str, value: float) -> None:
        self.jobs[name][way] = self.jobs[name].get(way, 0) + value
