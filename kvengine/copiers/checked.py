"""A copier that keeps a checksum of every slot, and detects bytes that changed in host memory after the store."""

from __future__ import annotations

import ctypes
import logging
import queue
import threading
import zlib

import numpy as np
from typing_extensions import override

from kvengine.copiers.base import Copier, Direction, Done, JobId
from kvengine.layout import Fragments

log = logging.getLogger(__name__)


class CheckedCopier(Copier):
    """Adds checksums to another copier. A thread of its own computes them after each copy.

    A store is done when the checksums of its slots are computed; a load when they are computed again, and it fails if
    they differ. A store fills its slots completely; a load may read parts of them. No store writes to a slot that is
    being loaded.
    """

    def __init__(self, copier: Copier, address: int, slot_bytes: int) -> None:
        """``address``: the address of slot 0."""
        self._copier = copier
        self._address = address
        self._slot_bytes = slot_bytes
        self._slots: dict[JobId, list[int]] = {}
        self._sums: dict[int, int] = {}
        self._copied: queue.SimpleQueue[tuple[Done, list[int]] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Done] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="kvengine-check", daemon=True)
        self._thread.start()

    @override
    def submit(self, job: JobId, direction: Direction, fragments: Fragments) -> None:
        self._slots[job] = np.unique((fragments.host - self._address) // self._slot_bytes).tolist()
        self._copier.submit(job, direction, fragments)

    @override
    def poll(self) -> list[Done]:
        for done in self._copier.poll():
            self._copied.put((done, self._slots.pop(done.job)))
        if not self._thread.is_alive():
            self._refuse()
        found = []
        while True:
            try:
                found.append(self._done.get_nowait())
            except queue.Empty:
                return found

    @override
    def close(self) -> None:
        self._copier.close()
        for done in self._copier.poll():
            self._copied.put((done, self._slots.pop(done.job)))
        self._copied.put(None)
        self._thread.join()
        self._refuse()

    def _work(self) -> None:
        while (copied := self._copied.get()) is not None:
            done, slots = copied
            ok = False
            try:
                ok = done.ok and self._check(done, slots)
            except Exception:
                log.exception("%s %d could not be checked", done.direction.value, done.job)
            finally:  # whatever the error is, the owner waits for this job
                self._done.put(done._replace(ok=ok))

    def _check(self, done: Done, slots: list[int]) -> bool:
        sums = {slot: self._sum(slot) for slot in slots}
        if done.direction is Direction.STORE:
            self._sums.update(sums)
            return True
        bad = [slot for slot, found in sums.items() if found != self._sums.get(slot)]
        if bad:
            log.error("host memory has changed since it was stored, in slots %s: what was in them is computed", bad)
        return not bad

    def _sum(self, slot: int) -> int:
        memory = (ctypes.c_char * self._slot_bytes).from_address(self._address + slot * self._slot_bytes)
        return zlib.crc32(memory)

    def _refuse(self) -> None:
        """Fail the jobs that are still queued after the checking thread has ended."""
        while True:
            try:
                copied = self._copied.get_nowait()
            except queue.Empty:
                return
            if copied is not None:
                self._done.put(copied[0]._replace(ok=False))
