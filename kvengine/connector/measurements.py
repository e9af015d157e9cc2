"""Measures what the scheduler's side and the workers do, and builds the statistics for vLLM's ``/metrics`` from it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from kvengine.connector.device_watch import DeviceWatch
from kvengine.connector.geometry import Geometry
from kvengine.connector.messages import Readiness, Reports
from kvengine.connector.statistics import DIRECTIONS, JOB_COUNTERS, Statistics
from kvengine.copiers.base import Direction
from kvengine.index import ChunkIndex
from kvengine.jobs import Job
from kvengine.plan import Ended, Planner
from kvengine.settings import Settings


@dataclass(slots=True)
class Increments:
    """Counts since the last ``take``. Counters that other objects keep since the start are recorded as differences."""

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
        taken: dict[str, Any] = {
            "counters": {name: value for name, value in self.counters.items() if value},
            "jobs": {name: by_way for name, by_way in self.jobs.items() if by_way},
            "job_seconds": {way: several for way, several in self.job_seconds.items() if several},
        }
        self.counters = {}
        self.jobs = {name: {} for name in JOB_COUNTERS}
        self.job_seconds = {way: [] for way in DIRECTIONS}
        return {name: value for name, value in taken.items() if value}

    def _job(self, name: str, way: str, value: float) -> None:
        self.jobs[name][way] = self.jobs[name].get(way, 0) + value


class Measurements:
    """The values that the next statistics are built from. Owner: the scheduler's side."""

    def __init__(self, shape: Geometry, settings: Settings) -> None:
        self.increments = Increments()
        self.capacity_slots = 0
        self._shape = shape
        self._settings = settings
        self._readiness = Readiness()
        self._start_s = time.time()
        self._latest: tuple[float, ...] = ()  # the variables that the latest gauges were computed from

    def memory(self, reports: Reports) -> None:
        """Record how much memory the workers have, and how long it took to become ready."""
        self.capacity_slots = min(reports.capacity_slots, self._shape.slots)
        self._readiness = self._readiness.or_slower(reports.readiness)

    def changes(self, planner: Planner, watch: DeviceWatch) -> Statistics:
        """Return the statistics if anything has changed since the last call, else empty ones."""
        shape, index, readiness = self._shape, planner.index, self._readiness
        self.increments.planned(planner, shape.chunk_tokens)
        increments = self.increments.take()
        variables = (*variables_of(watch, planner, self.capacity_slots), *readiness)
        if not increments and variables == self._latest:
            return Statistics()
        self._latest = variables
        now = {
            "gauges": tier_gauges(shape, self._settings, watch, index, self.capacity_slots),
            "open_jobs": {each.value: planner.jobs.count(each) for each in Direction},
            "arena": {
                "first_ready_seconds": readiness.first_ready_s,
                "ready_seconds": readiness.ready_s,
                "pin_seconds": readiness.pin_s,
                "longest_pin_seconds": readiness.longest_pin_s,
            },
            "start_s": self._start_s,
        }
        return Statistics(data=increments | now)


def tier_gauges(
    shape: Geometry, settings: Settings, watch: DeviceWatch, index: ChunkIndex, capacity_slots: int
) -> dict[str, dict[str, float]]:
    """Return each gauge's value by name and tier; ``statistics.TIER_GAUGES`` documents the names."""
    chunk_tokens = shape.chunk_tokens
    token_bytes = shape.block_bytes * shape.workers / shape.block_tokens
    stores = shape.stores and settings.local_cpu
    tokens = {
        "capacity": (watch.capacity * shape.block_tokens, capacity_slots * chunk_tokens),
        "resident": (watch.resident * shape.block_tokens, index.ready * chunk_tokens),
        "pinned": (watch.pinned * shape.block_tokens, index.pinned * chunk_tokens),
    }
    if not shape.prefix_caching:  # lookups find nothing on the device
        tokens["capacity"], tokens["resident"] = (0, tokens["capacity"][1]), (0, tokens["resident"][1])
    gauges: dict[str, tuple[float, float]] = {}
    for name, (gpu, cpu) in tokens.items():
        gauges[f"{name}_tokens"] = (gpu, cpu)
        gauges[f"{name}_bytes"] = (gpu * token_bytes, cpu * token_bytes)
    gauges["block_tokens"] = (shape.block_tokens, chunk_tokens)
    gauges["store_after"] = (float(shape.prefix_caching), settings.store_after if stores else 0)
    gauges["stores_decoded"] = (float(shape.prefix_caching), float(stores and settings.store_decode))
    gauges["eviction_horizon_timestamp_seconds"] = (watch.horizon_s, index.horizon_s)
    gauges["horizon_resident_tokens"] = (watch.at_horizon * shape.block_tokens, index.at_horizon * chunk_tokens)
    return {name: {"gpu": gpu, "cpu": cpu} for name, (gpu, cpu) in gauges.items()}


def variables_of(watch: DeviceWatch, planner: Planner, capacity_slots: int) -> tuple[float, ...]:
    """Return everything variable that the gauges are computed from: comparing it is cheaper than computing them."""
    index = planner.index
    return (
        watch.resident, watch.pinned, watch.horizon_s, watch.evicted,
        capacity_slots, index.ready, index.pinned, index.horizon_s,
        *(planner.jobs.count(direction) for direction in Direction),
    )  # fmt: skip
