"""One worker's host memory: taken at once, touched and pinned in the background, served from as far as it is ready.

An anonymous private mapping: it has no name that could be left behind, and the kernel takes it back however the process
ends. Several threads touch it, near the device, and run ahead; one thread pins behind them, piece by piece, since a
driver's lock is held while it pins, and a step that launches kernels meanwhile waits for it.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import NamedTuple, Protocol

from kvengine.errors import NoMemory
from kvengine.numa import stay_on

log = logging.getLogger(__name__)

PIECE_BYTES = 64 << 20
"""Touched and pinned at a time. A larger piece keeps the driver's lock longer, and steps wait for it."""
HUGE_BYTES = 2 << 20
"""Of a huge page; the arena begins at a multiple of it, so that the kernel can use them from the first byte on."""
MOST_TOUCHERS = 8
"""Threads. A guess: a few saturate a node's memory, and the engine needs its CPUs."""


class Pinning(Protocol):
    """Makes host memory known to the device."""

    def pin(self, address: int, size_bytes: int) -> None:
        """Until ``unpin``. Raises: KVEngineError."""

    def unpin(self, address: int) -> None:
        """What ``pin`` began at ``address``. Raises: KVEngineError."""


class ArenaStatistics(NamedTuple):
    """How the arena became ready."""

    ready_bytes: int
    pinned_pieces: int
    pin_total_s: float
    pin_max_s: float
    """The longest that a step which launches kernels could have had to wait for one piece."""
    first_ready_s: float | None
    """From the start to the first piece; None before."""
    all_ready_s: float | None
    """None before, and for ever when memory could not be had."""


class Arena:
    """``slots`` slots of ``slot_bytes``; the first ``ready_slots`` of them may be used. Owner: the worker.

    Given back by ``close``, when nobody knows the arena any more, and at the interpreter's end. Invariant:
    ``ready_slots`` never falls before that.
    """

    def __init__(
        self, slots: int, slot_bytes: int, pinning: Pinning | None = None, near: frozenset[int] = frozenset()
    ) -> None:
        """``near``: the CPUs to touch the memory from; none for any. Raises: NoMemory when the kernel does not give the
        addresses."""
        self.slots = slots
        self.slot_bytes = slot_bytes
        self._mapping = _Mapping(slots * slot_bytes, pinning, near)
        self._threads = [threading.Thread(target=self._mapping.make_ready, name="kvengine-arena", daemon=True)]
        cpus = len(near) or os.cpu_count() or 1
        for _ in range(max(1, min(MOST_TOUCHERS, cpus, len(self._mapping.pieces)))):
            self._threads.append(threading.Thread(target=self._mapping.touch, name="kvengine-touch", daemon=True))
        self._give_back = weakref.finalize(self, _give_back, self._mapping, self._threads)

    @property
    def address(self) -> int:
        """Of slot 0; 0 when the memory was given back."""
        return self._mapping.address

    @property
    def ready_slots(self) -> int:
        """How many, from the first on, may be used."""
        return self._mapping.ready_bytes // self.slot_bytes

    @property
    def attainable_slots(self) -> int:
        """As many as will ever be ready: all, until memory could not be had."""
        return self.ready_slots if self._mapping.closing.is_set() else self.slots

    def end_before(self, end: Callable[[], None]) -> None:
        """Call ``end``, after which nothing reads or writes the memory any more, before it is given back; however that
        comes, so that no copy outlives what it copies to. It must not know the arena."""
        self._mapping.users.append(end)

    def start(self) -> None:
        """Begin to make slots ready, from the first on."""
        for thread in self._threads:
            thread.start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until every slot is ready, or none will be any more; False when that took too long."""
        return self._mapping.ended.wait(timeout_s)

    def wait_for_first(self, timeout_s: float | None = None) -> int:
        """Wait until the first piece is ready, or none will be; how many bytes are."""
        self._mapping.begun.wait(timeout_s)
        return self._mapping.ready_bytes

    def statistics(self) -> ArenaStatistics:
        """As of now."""
        return self._mapping.statistics()

    def close(self) -> None:
        """Give the memory back. Nothing may read or write it any more. Never raises; the second call does nothing."""
        self._give_back()


class _Mapping:
    """The memory itself, which must not know the arena: its threads would keep that alive."""

    def __init__(self, size_bytes: int, pinning: Pinning | None, near: frozenset[int]) -> None:
        try:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            self._memory = mmap.mmap(-1, size_bytes + HUGE_BYTES, flags=flags)
        except (OSError, OverflowError, ValueError) as error:
            raise NoMemory(f"{size_bytes:,} bytes of host memory cannot be had: {error}") from error
        # A forked child must not make a pinned page a copy, and a core dump is not to be as large as the arena.
        for advice in ("MADV_HUGEPAGE", "MADV_DONTFORK", "MADV_DONTDUMP"):
            try:
                self._memory.madvise(getattr(mmap, advice))
            except (AttributeError, OSError) as error:
                log.debug("%s is not to be had: %s", advice, error)
        self._view: ctypes.Array[ctypes.c_char] | None = (ctypes.c_char * len(self._memory)).from_buffer(self._memory)
        self.address = -(-ctypes.addressof(self._view) // HUGE_BYTES) * HUGE_BYTES
        self.pieces = [(at, min(PIECE_BYTES, size_bytes - at)) for at in range(0, size_bytes, PIECE_BYTES)]
        self.ready_bytes = 0
        self.closing = threading.Event()
        """Nobody needs what is not ready yet."""
        self.begun = threading.Event()
        self.ended = threading.Event()
        self.users: list[Callable[[], None]] = []
        self._pinning = pinning
        self._near = near
        self._untouched: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in range(len(self.pieces)):
            self._untouched.put(number)
        self._touched: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._created = time.monotonic()
        self._pin_s: list[float] = []
        self._pinned: list[int] = []
        self._first_ready_s: float | None = None
        self._all_ready_s: float | None = None

    def touch(self) -> None:
        """One thread's part: take the next piece, and have the kernel find memory for it."""
        try:
            stay_on(self._near)
        except OSError as error:
            log.warning("host memory is touched from any CPU: %s", error)
        while not self.closing.is_set():
            try:
                number = self._untouched.get_nowait()
            except queue.Empty:
                return
            begin, size = self.pieces[number]
            ctypes.memset(self.address + begin, 0, size)
            self._touched.put(number)

    def make_ready(self) -> None:
        """Pin, in order, what was touched."""
        here: set[int] = set()
        try:
            for number, (begin, size) in enumerate(self.pieces):
                while number not in here and not self.closing.is_set():
                    here.add(self._touched.get())
                if self.closing.is_set():
                    return
                here.discard(number)
                self._pin(begin, size)
                self.ready_bytes = begin + size
                self._first_ready_s = self._first_ready_s or time.monotonic() - self._created
                self.begun.set()
            self._all_ready_s = time.monotonic() - self._created
            self._say()
        except Exception:
            log.exception("host memory from byte %d on cannot be used", self.ready_bytes)
            self.closing.set()
        finally:
            self.begun.set()
            self.ended.set()

    def statistics(self) -> ArenaStatistics:
        """As of now."""
        took = list(self._pin_s)
        return ArenaStatistics(
            self.ready_bytes, len(took), sum(took), max(took, default=0.0), self._first_ready_s, self._all_ready_s
        )

    def stop(self) -> None:
        """Have the threads end soon."""
        self.closing.set()
        self._touched.put(len(self.pieces))  # wakes the thread that pins

    def give_back(self) -> None:
        """Unpin and unmap. Never raises."""
        self.ready_bytes = 0
        for address in self._pinned:
            try:
                assert self._pinning is not None  # noqa: S101 - nothing is pinned without
                self._pinning.unpin(address)
            except Exception as error:
                log.warning("host memory stays pinned until the process ends: %s", error)
        self._pinned.clear()
        self.address = 0
        self._view = None
        try:
            self._memory.close()
        except BufferError:  # somebody holds a view: the mapping goes with it
            log.warning("host memory is still in use, and is given back when that ends")

    def _pin(self, begin: int, size: int) -> None:
        if self._pinning is None:
            return
        started = time.monotonic()
        self._pinning.pin(self.address + begin, size)
        self._pin_s.append(time.monotonic() - started)
        self._pinned.append(self.address + begin)

    def _say(self) -> None:
        seen = self.statistics()
        log.info(
            "%.2f GiB of host memory ready after %.2f s, the first piece after %.2f s; %d pieces pinned in %.2f s, the "
            "longest, for which a step may have had to wait, in %.1f ms",
            seen.ready_bytes / (1 << 30), seen.all_ready_s or 0.0, seen.first_ready_s or 0.0, seen.pinned_pieces,
            seen.pin_total_s, seen.pin_max_s * 1e3,
        )  # fmt: skip


_KEPT: set[_Mapping] = set()
"""Not unmapped, for a copy may still write there: for ever, unless all is known to have ended."""


def _give_back(mapping: _Mapping, threads: list[threading.Thread]) -> None:
    _KEPT.add(mapping)  # whatever interrupts this, a signal above all
    mapping.stop()
    if threading.current_thread().daemon:  # the garbage collector may run in any thread, also in one that is waited for
        args = (mapping, threads)
        threading.Thread(target=_give_back, args=args, name="kvengine-give-back", daemon=False).start()
        return
    for end in mapping.users:
        try:
            end()
        except Exception:
            log.exception("whether a copy still uses host memory is not known: it is kept until the process ends")
            return
    mapping.users.clear()
    for thread in threads:
        if thread.is_alive():
            thread.join()
    mapping.give_back()
    _KEPT.discard(mapping)
