"""A device in host memory that finds its callers' mistakes.

Streams are threads, so operations without an order really happen in any order. Every access to memory has a vector
clock. Two accesses to the same bytes, one of them a write, are a mistake if neither is ordered before the other by a
stream, by an event, or because the host saw it end; this does not depend on how the threads happened to run. Other
mistakes are accesses outside of allocated or pinned memory, copies that cross from one pinned piece into the next, and
freeing or unpinning memory in use.
"""

from __future__ import annotations

import ctypes
import threading
from bisect import bisect_right, insort
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kvengine.cuda.driver import DeviceError, Event, Stream
from kvengine.layout import Addresses
from tests.kvengine.memory_ranges import overlap, sorted_ranges
from tests.kvengine.memory_streams import Clock, HostEvent, HostStream, merge, run_tasks, wait_for

NOTHING = (np.array([], dtype=np.int64), np.array([], dtype=np.int64))


@dataclass
class Access:
    """The memory that one operation reads and writes, and its time."""

    stream: Stream
    at: int
    reads: tuple[Addresses, Addresses]
    """The ranges' begins and ends, sorted by begin."""
    writes: tuple[Addresses, Addresses]


class MemoryDriver:
    """Implements ``Driver``; ``mistakes`` has everything that a correct caller would not have done."""

    name = "host memory"
    pci_address = None

    def __init__(self) -> None:
        self.mistakes: list[str] = []
        self.no_kernel: str | None = None
        self.calls: list[str] = []
        self.refuse: Callable[[str], bool] = lambda call: False
        """A fault: returns whether to refuse a call, by its name."""
        self.dead = False
        self.garble: Callable[[str], bool] = lambda call: False
        """A fault: returns whether a copy or move writes wrong bytes."""
        self._lock = threading.RLock()
        self._streams: dict[Stream, HostStream] = {}
        self._threads: list[threading.Thread] = []
        self._events: dict[Event, HostEvent] = {}
        self._host: Clock = {}
        """The operations that the host has seen end."""
        self._accesses: list[Access] = []
        self._pieces: dict[int, tuple[int, bool]] = {}
        """Pieces of memory by begin: the size, and whether the piece is on the device."""
        self._begins: list[int] = []
        self._owned: dict[int, np.ndarray] = {}  # type: ignore[type-arg]
        self._numbers = 0

    # The interface ``Driver``.

    def stream(self, *, urgent: bool) -> Stream:
        with self._lock:
            self._check("stream")
            stream = Stream(self._number())
            self._streams[stream] = opened = HostStream(urgent)
            thread = threading.Thread(target=run_tasks, args=(opened.tasks,), daemon=True)
            self._threads.append(thread)
            thread.start()
            return stream

    def event(self) -> Event:
        with self._lock:
            self._check("event")
            event = Event(self._number())
            self._events[event] = HostEvent()
            self._events[event].reached.set()
            return event

    def destroy(self, streams: list[Stream], events: list[Event]) -> None:
        with self._lock:
            self._check("destroy")
            for event in events:
                if not self._events.pop(event).reached.is_set() and not self.dead:
                    self.mistakes.append(f"event {event} is destroyed before it is reached")
            for stream in streams:
                self._streams.pop(stream).tasks.put(None)

    def record(self, event: Event, stream: Stream) -> None:
        with self._lock:
            self._check("record")
            clock = self._tick(stream)
            # A stream that already waits for the event waits for its previous recording, not for this one.
            self._events[event] = recorded = HostEvent(dict(clock))
            self._streams[stream].tasks.put(recorded.reached.set)

    def wait(self, stream: Stream, event: Event) -> None:
        with self._lock:
            self._check("wait")
            recorded = self._events[event]
            merge(self._streams[stream].clock, recorded.clock)
            self._streams[stream].tasks.put(lambda: wait_for(recorded.reached))

    def reached(self, event: Event) -> bool:
        with self._lock:
            self._check("reached")
            recorded = self._events[event]
            if recorded.reached.is_set():
                self._seen(recorded.clock)
                return True
            return False

    def block_until(self, event: Event) -> None:
        with self._lock:
            self._check("block_until")
            recorded = self._events[event]
        self._block(recorded.reached)
        with self._lock:
            self._seen(recorded.clock)

    def synchronize(self, stream: Stream) -> None:
        reached = threading.Event()
        with self._lock:
            self._check("synchronize")
            clock = dict(self._streams[stream].clock)
            self._streams[stream].tasks.put(reached.set)
        self._block(reached)
        with self._lock:
            self._seen(clock)

    def copy(self, stream: Stream, to: Addresses, source: Addresses, sizes: Addresses) -> None:
        with self._lock:
            self._check("copy")
            lists = to.tolist(), source.tolist(), sizes.tolist()
            for address, size in (*zip(lists[0], lists[2], strict=True), *zip(lists[1], lists[2], strict=True)):
                self._within(address, size)
            self._access(stream, reads=(source, sizes), writes=(to, sizes))
            wrong = self.garble("copy")
            self._streams[stream].tasks.put(lambda: _copy(*lists, wrong=wrong))

    def move(self, stream: Stream, table: int, count: int) -> None:
        with self._lock:
            self._check("move")
            self._within(table, count * 24)
            written = sorted_ranges((np.array([table]), np.array([count * 24])))
            self._conflicts(self._host, NOTHING, written, "the table is written")
            to, source, sizes = _table(table, count)
            for address, size in (*zip(to, sizes, strict=True), *zip(source, sizes, strict=True)):
                if not self._within(address, size):
                    raise DeviceError("move: a piece on no device")
            reads = (np.append(source, table), np.append(sizes, count * 24))
            self._access(stream, reads=reads, writes=(to, sizes))
            wrong = self.garble("move")
            self._streams[stream].tasks.put(
                lambda: _copy(*(each.tolist() for each in _table(table, count)), wrong=wrong)
            )

    def can_move(self) -> str | None:
        return self.no_kernel

    def pin(self, address: int, size_bytes: int) -> None:
        with self._lock:
            self._check("pin")
            self._know(address, size_bytes, device=False)

    def unpin(self, address: int) -> None:
        with self._lock:
            self._check("unpin")
            self._leave(address)

    def device_memory(self, size_bytes: int) -> int:
        with self._lock:
            self._check("device_memory")
            return self._own(size_bytes, device=True)

    def host_memory(self, size_bytes: int) -> int:
        with self._lock:
            self._check("host_memory")
            return self._own(size_bytes, device=False)

    def free_device(self, address: int) -> None:
        with self._lock:
            self._check("free_device")
            self._leave(address)
            del self._owned[address]

    def free_host(self, address: int) -> None:
        self.free_device(address)

    def close(self) -> None:
        for stream in self._streams.values():
            stream.tasks.put(None)
        for thread in self._threads:
            thread.join()

    # For tests only.

    def leftovers(self) -> str:
        """Return the streams, events and memory that were not released; empty if all were."""
        with self._lock:
            left = {"streams": len(self._streams), "events": len(self._events), "pieces": len(self._pieces)}
            return ", ".join(f"{count} {what}" for what, count in left.items() if count)

    def hold(self, stream: Stream) -> threading.Event:
        """Hold ``stream`` back until the returned event is set."""
        gate = threading.Event()
        self._streams[stream].tasks.put(lambda: wait_for(gate))
        return gate

    def _block(self, reached: threading.Event) -> None:
        while not reached.wait(0.01):
            if self.dead:
                raise DeviceError("the device died meanwhile")

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _check(self, call: str) -> None:
        self.calls.append(call)
        if self.dead or self.refuse(call):
            raise DeviceError(f"{call} failed")

    def _tick(self, stream: Stream) -> Clock:
        clock = self._streams[stream].clock
        merge(clock, self._host)
        clock[stream] = clock.get(stream, 0) + 1
        return clock

    def _seen(self, clock: Clock) -> None:
        merge(self._host, clock)
        self._accesses = [each for each in self._accesses if self._host.get(each.stream, 0) < each.at]

    def _own(self, size_bytes: int, *, device: bool) -> int:
        memory = np.zeros(size_bytes + 16, dtype=np.uint8)
        address = -(-memory.ctypes.data // 16) * 16
        self._owned[address] = memory
        self._know(address, size_bytes, device=device)
        return address

    def _know(self, address: int, size_bytes: int, *, device: bool) -> None:
        self._pieces[address] = (size_bytes, device)
        insort(self._begins, address)

    def _within(self, address: int, size: int) -> bool:
        at = bisect_right(self._begins, address) - 1
        if at >= 0 and address + size <= self._begins[at] + self._pieces[self._begins[at]][0]:
            return True
        self.mistakes.append(f"{size} bytes at {address:#x} are in no one piece of memory")
        return False

    def _leave(self, address: int) -> None:
        size, _ = self._pieces.pop(address)
        self._begins.remove(address)
        given = sorted_ranges((np.array([address]), np.array([size])))
        self._conflicts(self._host, NOTHING, given, "memory is given back")

    def _access(self, stream: Stream, reads: tuple[Addresses, Addresses], writes: tuple[Addresses, Addresses]) -> None:
        clock = self._tick(stream)
        read, written = sorted_ranges(reads), sorted_ranges(writes)
        self._conflicts(clock, read, written)
        self._accesses.append(Access(stream, clock[stream], read, written))

    def _conflicts(
        self,
        clock: Clock,
        reads: tuple[Addresses, Addresses],
        writes: tuple[Addresses, Addresses],
        what: str = "it is used",
    ) -> None:
        for other in self._accesses:
            if clock.get(other.stream, 0) >= other.at:
                continue
            for mine, theirs in ((reads, other.writes), (writes, other.writes), (writes, other.reads)):
                if overlap(mine, theirs):
                    self.mistakes.append(f"{what} while stream {other.stream} may still use it")


def _copy(to: list[int], source: list[int], sizes: list[int], *, wrong: bool) -> None:
    for target, origin, size in zip(to, source, sizes, strict=True):
        ctypes.memmove(target, origin, size)
    if wrong and sizes:
        ctypes.memset(to[-1], ctypes.string_at(to[-1], 1)[0] + 1, 1)


def _table(address: int, count: int) -> tuple[Addresses, Addresses, Addresses]:
    rows = np.frombuffer(ctypes.string_at(address, count * 24), dtype=np.int64).reshape(3, count)
    return rows[0], rows[1], rows[2]
