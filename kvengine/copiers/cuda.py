"""Copies between a CUDA device and pinned host memory.

One thread per direction begins the copies, so that a step never waits for a long list of them, and loads never wait for
stores. The owner's thread only records an event on the engine's stream when a store is submitted, and queries events
when it polls. Loads use urgent streams; stores do not.

A job that cannot be begun as a whole fails once the part of it that had begun has ended. If even that cannot be
determined, the device is dead, as CUDA contexts are after some errors: every job fails from then on.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from typing_extensions import override

from kvengine.copiers.base import Copier, Direction, Done, JobId
from kvengine.copiers.cuda_dma import begin_copies
from kvengine.copiers.cuda_gather import RING_SIZE, RingSize, Staging
from kvengine.copiers.descriptors import HostPieces, checked, split
from kvengine.cuda.driver import DeviceError, Driver, Event, Stream
from kvengine.layout import Fragments

log = logging.getLogger(__name__)

NEVER = 0
"""A threshold below which no fragment is."""
ALWAYS = 1 << 62
"""A threshold below which every fragment is."""


@dataclass(frozen=True, slots=True)
class KernelBelow:
    """The fragment sizes below which the kernel copies, by way of the staging ring, if they fit into it.

    All other fragments are copied directly.
    """

    load_bytes: int = NEVER
    store_bytes: int = NEVER

    def of(self, direction: Direction) -> int:
        """Return the threshold of one direction."""
        return self.load_bytes if direction is Direction.LOAD else self.store_bytes


@dataclass(slots=True)
class _Job:
    id: JobId
    fragments: Fragments
    after: Event | None
    kernel_below: int
    submitted: float
    ends: list[Event]
    """Events that are reached when everything is copied."""

    @property
    def copied_bytes(self) -> int:
        return int(self.fragments.sizes.sum())


class CudaCopier(Copier):
    """Implements ``Copier`` on a ``Driver``. A job counts as ended at the poll that notices it."""

    def __init__(
        self, driver: Driver, compute: Callable[[], Stream], pieces: HostPieces, ring: RingSize = RING_SIZE
    ) -> None:
        """``compute`` returns the stream on which the KV is computed, and is called for each store.

        Raises: DeviceError when no streams are available.
        """
        self.kernel_below = KernelBelow()
        """The thresholds for jobs that are submitted from now on."""
        self._driver = driver
        self._compute = compute
        self.pieces = pieces
        self._free_events: deque[Event] = deque()  # shared by the threads
        self._ended: queue.SimpleQueue[Done] = queue.SimpleQueue()
        self._dead = False
        self._dying = threading.Lock()
        self._lanes = {each: _Lane(self, driver, each, ring) for each in Direction}
        self._closed = False
        self._drained = False
        for lane in self._lanes.values():
            lane.thread.start()

    @property
    def dead(self) -> bool:
        """Whether the device no longer responds."""
        return self._dead

    def can_stage(self) -> str | None:
        """Create the staging rings, while no job is open; return why that is not possible, or None."""
        try:
            for lane in self._lanes.values():
                lane.stage()
        except DeviceError as error:
            return str(error)
        return None

    @override
    def submit(self, job: JobId, direction: Direction, fragments: Fragments) -> None:
        lane = self._lanes[direction]
        opened = _Job(job, fragments, None, self.kernel_below.of(direction), time.monotonic(), [])
        if self._dead or self._closed:
            self.fail(opened, direction)
            return
        try:
            if direction is Direction.STORE:
                opened.after = self.take_event()
                self._driver.record(opened.after, self._compute())
        except Exception:
            log.exception("store %d cannot wait for the engine", job)
            self.fail(opened, direction)
            return
        lane.jobs.put(opened)

    @override
    def poll(self) -> list[Done]:
        done = []
        for direction, lane in self._lanes.items():
            while lane.running and self._reached(lane, lane.running[0]):
                job = lane.running.popleft()
                if self._dead:  # ``_reached`` may just have found this out
                    self.fail(job, direction)
                    continue
                self.give_events(job.ends)
                done.append(Done(job.id, direction, True, job.copied_bytes, time.monotonic() - job.submitted))
        while True:
            try:
                done.append(self._ended.get_nowait())
            except queue.Empty:
                return done

    @override
    def close(self) -> None:
        if self._drained:
            return
        self._closed = True  # a signal may interrupt what follows; the next call then repeats it
        for lane in self._lanes.values():
            lane.jobs.put(None)
        for lane in self._lanes.values():
            lane.thread.join()
        for lane in self._lanes.values():
            lane.drained()
        self._drained = True
        for each in self.poll():
            self._ended.put(each)  # for the owner's next poll
        for lane in self._lanes.values():
            lane.close()
        try:
            self._driver.destroy([], list(self._free_events))
        except DeviceError as error:
            log.warning("events are left to the device: %s", error)

    def take_event(self) -> Event:
        """Return an event that no stream waits for. Raises: DeviceError."""
        try:
            return self._free_events.popleft()
        except IndexError:
            return self._driver.event()

    def give_events(self, events: list[Event]) -> None:
        """Take back events that are no longer queried and that no stream will be made to wait for."""
        self._free_events.extend(events)

    def fail(self, job: _Job, direction: Direction) -> None:
        """Report a job as failed: it has ended, and its destination's bytes are undefined."""
        self.give_events(job.ends if job.after is None else [*job.ends, job.after])
        size = job.copied_bytes
        self._ended.put(Done(job.id, direction, False, size, time.monotonic() - job.submitted))

    def die(self, error: Exception) -> None:
        """Declare the device dead, since it no longer responds."""
        with self._dying:
            first, self._dead = not self._dead, True
        if first:
            log.error("%s answers no more, and nothing more is kept in host memory: %s", self._driver.name, error)

    def _reached(self, lane: _Lane, job: _Job) -> bool:
        if self._dead or self._drained:
            return True
        try:
            return all(self._driver.reached(event) for event in job.ends)
        except DeviceError as error:
            log.warning("%s was asked whether a copy has ended, and refused: %s", self._driver.name, error)
            lane.settle()  # no job may fail, and so release its blocks, while it still copies
            return True


class _Lane:
    """One direction: its streams, its thread, and its running jobs."""

    def __init__(self, copier: CudaCopier, driver: Driver, direction: Direction, ring: RingSize) -> None:
        self._copier = copier
        self._driver = driver
        self._direction = direction
        urgent = direction is Direction.LOAD
        self._copies = driver.stream(urgent=urgent)
        self._kernels = driver.stream(urgent=urgent)
        self._ring = ring
        self._staging: Staging | None = None
        self.jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self.running: deque[_Job] = deque()
        """The jobs that have begun, in order."""
        self.thread = threading.Thread(target=self._work, name=f"kvengine-{direction.value}", daemon=True)

    def stage(self) -> None:
        """Create the staging ring. Raises: DeviceError."""
        if self._staging is None:
            self._staging = Staging(self._driver, self._direction, self._copies, self._kernels, self._ring)

    def settle(self) -> bool:
        """Wait until the streams are idle; any thread may call it.

        Returns False when the device does not respond; the copier is dead then.
        """
        try:
            self._driver.synchronize(self._copies)
            self._driver.synchronize(self._kernels)
        except Exception as error:  # any exception would end the lane's thread and leave its jobs waiting
            self._copier.die(error)
            return False
        return True

    def drained(self) -> None:
        """Wait until the streams are idle, when nothing else is being begun on them, and free the ring's places.

        The copier is dead afterwards if the device does not respond.
        """
        if self.settle() and self._staging is not None:
            self._staging.clear()

    def close(self) -> None:
        """Release the streams and the ring, when nothing runs any more. Never raises."""
        try:
            if self._staging is not None:
                self._staging.close()
            self._driver.destroy([self._copies, self._kernels], [])
        except DeviceError as error:
            log.warning("streams and staging memory are left to the device: %s", error)

    def _work(self) -> None:
        while (job := self.jobs.get()) is not None:
            if not self._copier.dead and self._began(job):
                self.running.append(job)
            else:
                self._copier.fail(job, self._direction)

    def _began(self, job: _Job) -> bool:
        """Return whether the whole job was begun; if not, no part of it runs any more."""
        try:
            self._begin(job)
        except Exception:  # whatever the error is, the owner waits for this job
            log.exception("%s %d failed", self._direction.value, job.id)
            self.drained()
            return False
        if job.after is not None:
            self._copier.give_events([job.after])  # the streams that wait for it have been set up already
            job.after = None
        return True

    def _begin(self, job: _Job) -> None:
        below = min(job.kernel_below, self._ring.place_bytes + 1) if self._staging is not None else NEVER
        small, large = split(checked(job.fragments), below)
        used = [self._copies]
        if len(small.sizes):
            used.append(self._kernels)
        if job.after is not None:
            for stream in used:
                self._driver.wait(stream, job.after)
        if self._staging is not None and len(small.sizes):
            self._staging.begin(small, self._copier.pieces)
        begin_copies(self._driver, self._copies, self._direction, large, self._copier.pieces)
        for stream in used:
            end = self._copier.take_event()
            job.ends.append(end)
            self._driver.record(end, stream)
