"""One worker's host memory: allocated at once, touched and pinned in the background, used as far as it is ready.

The memory is an anonymous private mapping: it has no name that could be left behind, and the kernel reclaims it however
the process ends. Several threads touch it from CPUs near the device. A single thread follows them and pins the memory
piece by piece: pinning holds a driver lock, and a step that launches kernels meanwhile waits for that lock.
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
"""Bytes touched and pinned at a time. A larger piece holds the driver's lock longer, and steps wait for it."""
HUGE_BYTES = 2 << 20
"""Size of a huge page. The arena begins at a multiple of it, so that the kernel can use huge pages from the first byte
on."""
MOST_TOUCHERS = 8
"""Most threads that touch memory. A guess: a few saturate a NUMA node's memory, and the engine needs its CPUs."""


class Pinning(Protocol):
    """Registers host memory with the device."""

    def pin(self, address: int, size_bytes: int) -> None:
        """Pin this memory until ``unpin``. Raises: KVEngineError."""

    def unpin(self, address: int) -> None:
        """Unpin the memory that ``pin`` registered at ``address``. Raises: KVEngineError."""


class ArenaStatistics(NamedTuple):
    """How long the arena took to become ready."""

    ready_bytes: int
    pinned_pieces: int
    pin_total_s: float
    pin_max_s: float
    """The longest time for one piece: an upper bound on how long a step that launches kernels had to wait."""
    first_ready_s: float | None
    """From the start until the first piece was ready; None before that."""
    all_ready_s: float | None
    """From the start until all memory was ready; None before that, and forever if some memory could not be pinned."""


class Arena:
    """Host memory for ``slots`` slots of ``slot_bytes``; the first ``ready_slots`` of them may be used.

    The memory is released by ``close``, when the arena is garbage-collected, or when the interpreter exits. Invariant:
    ``ready_slots`` never decreases before that. Owner: the worker.
    """

    def __init__(
        self, slots: int, slot_bytes: int, pinning: Pinning | None = None, near: frozenset[int] = frozenset()
    ) -> None:
        """``near``: the CPUs to touch the memory from; empty for any CPU.

        Raises: NoMemory when the kernel does not reserve the addresses.
        """
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
        """The address of slot 0; 0 once the memory has been released."""
        return self._mapping.address

    @property
    def ready_slots(self) -> int:
        """How many slots, counted from the first, may be used."""
        return self._mapping.ready_bytes // self.slot_bytes

    @property
    def attainable_slots(self) -> int:
        """How many slots will ever be ready: all of them, unless some memory could not be made ready."""
        return self.ready_slots if self._mapping.closing.is_set() else self.slots

    def end_before(self, end: Callable[[], None]) -> None:
        """Register ``end``, to be called before the memory is released, however that happens.

        ``end`` returns when nothing reads or writes the memory any more, so that no copy outlives the memory it copies
        to. It must not hold a reference to the arena.
        """
        self._mapping.users.append(end)

    def start(self) -> None:
        """Begin to make slots ready, from the first on."""
        for thread in self._threads:
            thread.start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until every slot is ready or no further slot will be; return False on a timeout."""
        return self._mapping.ended.wait(timeout_s)

    def wait_for_first(self, timeout_s: float | None = None) -> int:
        """Wait until the first piece is ready or none will be; return how many bytes are ready."""
        self._mapping.begun.wait(timeout_s)
        return self._mapping.ready_bytes

    def statistics(self) -> ArenaStatistics:
        """Return how far the memory is ready, and how long that took."""
        return self._mapping.statistics()

    def close(self) -> None:
        """Release the memory, which no copy may use any more. Never raises; the second call does nothing."""
        self._give_back()


class _Mapping:
    """The memory itself. It holds no reference to the arena, which its threads would keep alive otherwise."""

    def __init__(self, size_bytes: int, pinning: Pinning | None, near: frozenset[int]) -> None:
        try:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            self._memory = mmap.mmap(-1, size_bytes + HUGE_BYTES, flags=flags)
        except (OSError, OverflowError, ValueError) as error:
            raise NoMemory(f"{size_bytes:,} bytes of host memory cannot be had: {error}") from error
        # A forked child must not cause copies of pinned pages, and a core dump must not be as large as the arena.
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
        """Set when memory that is not ready yet is no longer needed, or cannot be made ready."""
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
        """Run one touching thread: take the next piece and write to it, so that the kernel allocates its pages."""
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
        """Run the pinning thread: pin the touched pieces in order."""
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
        """Return how far the memory is ready, and how long that took."""
        took = list(self._pin_s)
        return ArenaStatistics(
            self.ready_bytes, len(took), sum(took), max(took, default=0.0), self._first_ready_s, self._all_ready_s
        )

    def stop(self) -> None:
        """Ask the threads to end soon."""
        self.closing.set()
        self._touched.put(len(self.pieces))  # wakes the thread that pins

    def give_back(self) -> None:
        """Unpin and unmap the memory. Never raises."""
        self.ready_bytes = 0
        for address in self._pinned:
            try:
                assert self._pinning is not None  # noqa: S101 - without it, nothing was pinned
                self._pinning.unpin(address)
            except Exception as error:
                log.warning("host memory stays pinned until the process ends: %s", error)
        self._pinned.clear()
        self.address = 0
        self._view = None
        try:
            self._memory.close()
        except BufferError:  # a view still exists: the mapping is freed with it
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
"""Mappings that are not unmapped, since a copy may still write to them. They stay here forever, unless all copies are
known to have ended."""


def _give_back(mapping: _Mapping, threads: list[threading.Thread]) -> None:
    _KEPT.add(mapping)  # keeps the memory mapped if a signal or anything else interrupts this
    mapping.stop()
    if threading.current_thread().daemon:  # the garbage collector runs in any thread, even in one that this would join
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
