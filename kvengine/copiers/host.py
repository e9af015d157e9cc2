"""Copies within host memory, for vLLM's CPU backend and for tests."""

from __future__ import annotations

import ctypes
import logging
import queue
import threading
import time

from typing_extensions import override

from kvengine.copiers.base import Copier, Direction, Done, JobId
from kvengine.layout import Fragments

log = logging.getLogger(__name__)


class HostCopier(Copier):
    """Copies with one thread for loads and one for stores, so that neither waits for the other.

    The submitting thread computes the KV itself, before it submits. So a store needs no ordering beyond that of its
    queue.
    """

    def __init__(self) -> None:
        self._done: queue.SimpleQueue[Done] = queue.SimpleQueue()
        self._open: dict[Direction, queue.SimpleQueue[_Job | None]] = {d: queue.SimpleQueue() for d in Direction}
        self._threads = {
            each: threading.Thread(target=self._work, args=(each,), name=f"kvengine-{each.value}", daemon=True)
            for each in Direction
        }
        for thread in self._threads.values():
            thread.start()

    @override
    def submit(self, job: JobId, direction: Direction, fragments: Fragments) -> None:
        self._open[direction].put(_Job(job, fragments))

    @override
    def poll(self) -> list[Done]:
        for direction, thread in self._threads.items():
            if not thread.is_alive():
                self._refuse(direction)
        done = []
        while True:
            try:
                done.append(self._done.get_nowait())
            except queue.Empty:
                return done

    @override
    def close(self) -> None:
        for direction, thread in self._threads.items():
            self._open[direction].put(None)
            thread.join()
            self._refuse(direction)

    def _work(self, direction: Direction) -> None:
        while (job := self._open[direction].get()) is not None:
            ok = False
            try:
                copy(job.fragments, direction)
                ok = True
            except Exception:
                log.exception("%s %d failed", direction.value, job.job)
            finally:  # whatever the error is, the owner waits for this job
                seconds = time.monotonic() - job.submitted
                self._done.put(Done(job.job, direction, ok, job.size_bytes, seconds))

    def _refuse(self, direction: Direction) -> None:
        """Fail the jobs that are still queued after their thread has ended."""
        while True:
            try:
                job = self._open[direction].get_nowait()
            except queue.Empty:
                return
            if job is not None:
                self._done.put(Done(job.job, direction, False, 0, time.monotonic() - job.submitted))


class _Job:
    __slots__ = ("fragments", "job", "size_bytes", "submitted")

    def __init__(self, job: JobId, fragments: Fragments) -> None:
        self.job = job
        self.fragments = fragments
        self.size_bytes = int(fragments.sizes.sum())
        self.submitted = time.monotonic()


def copy(fragments: Fragments, direction: Direction) -> None:
    """Copy every fragment in turn, without holding the interpreter's lock."""
    device, host = fragments.device.tolist(), fragments.host.tolist()
    to, source = (device, host) if direction is Direction.LOAD else (host, device)
    for destination, origin, size in zip(to, source, fragments.sizes.tolist(), strict=True):
        ctypes.memmove(destination, origin, size)
