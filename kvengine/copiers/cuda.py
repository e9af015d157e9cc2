"""Copies between a CUDA device and pinned host memory.

One thread per direction begins the copies, so that a step never waits for a long list of them, and loads never for
stores. The owner's thread only notes an event on the engine's stream when a store is submitted, and asks for events
when it polls. Loads have urgent streams, stores have not.

A job that cannot be begun as a whole is failed when what had begun of it has ended. When even that cannot be known the
device is dead, as CUDA's contexts are after some errors: every job fails from then on.
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
ALWAYS = 1 << 62


@dataclass(frozen=True, slots=True)
class KernelBelow:
    """Fragments of fewer bytes go through the staging ring, if they fit it; the others are copied as they are."""

    load_bytes: int = NEVER
    store_bytes: int = NEVER

    def of(self, direction: Direction) -> int:
        """In one direction."""
        return self.load_bytes if direction is Direction.LOAD else self.store_bytes


@dataclass(slots=True)
class _Job:
    id: JobId
    fragments: Fragments
    after: Event | None
    kernel_below: int
    submitted: float
    ends: list[Event]
    """Reached when all is copied."""

    @property
    def copied_bytes(self) -> int:
        return int(self.fragments.sizes.sum())


class CudaCopier(Copier):
    """Implements ``Copier`` on a ``Driver``. A job counts as ended at the poll that sees it."""

    def __init__(
        self, driver: Driver, compute: Callable[[], Stream], pieces: HostPieces, ring: RingSize = RING_SIZE
    ) -> None:
        """``compute``: the stream on which what stores read was launched, asked for at each store. Raises: DeviceError
        when there are no streams."""
        self.kernel_below = KernelBelow()
        """For the jobs that are submitted from now on."""
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
        """Whether the device answers no more."""
        return self._dead

    def can_stage(self) -> str | None:
        """Make the staging rings; why they cannot be had, or None. Nothing has been submitted yet."""
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
                if self._dead:  # what was asked first may have shown it
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
        self._closed = True  # a signal may interrupt what follows: it is gone through again by the next call
        for lane in self._lanes.values():
            lane.jobs.put(None)
        for lane in self._lanes.values():
            lane.thread.join()
        for lane in self._lanes.values():
            lane.drained()
        self._drained = True
        for each in self.poll():
            self._ended.put(each)  # for whoever polls after this
        for lane in self._lanes.values():
            lane.close()
        try:
            self._driver.destroy([], list(self._free_events))
        except DeviceError as error:
            log.warning("events are left to the device: %s", error)

    def take_event(self) -> Event:
        """One that nothing waits for. Raises: DeviceError."""
        try:
            return self._free_events.popleft()
        except IndexError:
            return self._driver.event()

    def give_events(self, events: list[Event]) -> None:
        """Nobody asks for them, or is to be told to wait for them, any more."""
        self._free_events.extend(events)

    def fail(self, job: _Job, direction: Direction) -> None:
        """The job has ended, its destination's bytes undefined."""
        self.give_events(job.ends if job.after is None else [*job.ends, job.after])
        size = job.copied_bytes
        self._ended.put(Done(job.id, direction, False, size, time.monotonic() - job.submitted))

    def die(self, error: Exception) -> None:
        """The device answers no more."""
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
            lane.settle()  # no job is said to have failed, and its blocks are no one else's, while it still copies
            return True


class _Lane:
    """One direction: its streams, its thread, and the jobs that run."""

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
        """Begun, in order."""
        self.thread = threading.Thread(target=self._work, name=f"kvengine-{direction.value}", daemon=True)

    def stage(self) -> None:
        """Make the ring. Raises: DeviceError."""
        if self._staging is None:
            self._staging = Staging(self._driver, self._direction, self._copies, self._kernels, self._ring)

    def settle(self) -> bool:
        """Wait for the streams; any thread may. False when the device does not answer, and the copier dies."""
        try:
            self._driver.synchronize(self._copies)
            self._driver.synchronize(self._kernels)
        except Exception as error:  # in the lane's thread, whatever it is would end the lane and leave its jobs waiting
            self._copier.die(error)
            return False
        return True

    def drained(self) -> None:
        """Wait for the streams, when nothing else is begun on them. The copier dies when the device does not answer."""
        if self.settle() and self._staging is not None:
            self._staging.clear()

    def close(self) -> None:
        """Nothing runs any more. Never raises."""
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
        """Whether all of it was begun; if not, nothing of it runs any more."""
        try:
            self._begin(job)
        except Exception:  # whatever it is, somebody waits for this job
            log.exception("%s %d failed", self._direction.value, job.id)
            self.drained()
            return False
        if job.after is not None:
            self._copier.give_events([job.after])  # what waits for it has been told already
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
