"""Builds the statistics for vLLM's ``/metrics`` whenever anything has changed."""

from __future__ import annotations

import time

from kvengine.connector.device_watch import DeviceWatch
from kvengine.connector.gauges import arena_gauges, state_of, tier_gauges
from kvengine.connector.geometry import Geometry
from kvengine.connector.messages import Readiness, Reports
from kvengine.connector.statistics import Statistics
from kvengine.connector.tally import Tally
from kvengine.copiers.base import Direction
from kvengine.plan import Planner
from kvengine.settings import Settings


class Page:
    """The values that the next statistics are built from. Owner: the scheduler's side."""

    def __init__(self, shape: Geometry, settings: Settings) -> None:
        self.tally = Tally()
        self.capacity_slots = 0
        self._shape = shape
        self._settings = settings
        self._readiness = Readiness()
        self._start_s = time.time()
        self._told: tuple[float, ...] = ()

    def memory(self, reports: Reports) -> None:
        """Record how much memory the workers have, and how long it took to become ready."""
        self.capacity_slots = min(reports.capacity_slots, self._shape.slots)
        self._readiness = self._readiness.or_slower(reports.readiness)

    def changes(self, planner: Planner, watch: DeviceWatch) -> Statistics:
        """Return the statistics if anything has changed since the last call, else empty ones."""
        shape, index = self._shape, planner.index
        self.tally.planned(planner, shape.chunk_tokens)
        told = self.tally.take()
        state = (*state_of(watch, planner, self.capacity_slots), *self._readiness)
        if not told and state == self._told:
            return Statistics()
        self._told = state
        now = {
            "gauges": tier_gauges(shape, self._settings, watch, index, self.capacity_slots),
            "open_jobs": {each.value: planner.jobs.count(each) for each in Direction},
            "arena": arena_gauges(self._readiness),
            "start_s": self._start_s,
        }
        return Statistics(data=told | now)
