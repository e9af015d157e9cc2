"""Memory settings of a serving process, which commands call and libraries do not.

Freed memory is kept for the next request, since returning it to the system means that it has to be faulted in again.
It is returned when it was unused for a while, as after a burst. By itself, glibc only returns the end of the heap, and
one small block in use at the end keeps everything below it.

A prompt of 400 KB is copied six times on its way (frame, message, text, canonical bytes, digest, answer). glibc returns
each block to the system as soon as it is freed, and the system zeroes and maps it again page by page. That cost 4 times
as much as all the rest of the exchange.

Source: one exchange with a 400 KB chat, without transport: 676 µs before, 150 µs after (2 shared cores, Python 3.11,
glibc, 2026-11-21). 120 KB and less: no difference. Price: up to KEEP_BYTES of unused memory, and more
for UNUSED_LOOKS seconds.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections.abc import Callable

KEEP_BYTES = 64 * 1024 * 1024
"""Free memory beyond this is returned to the system. A guess: several of the largest prompts."""
LOOK_EVERY_S = 1.0
UNUSED_LOOKS = 10
"""How many looks in a row must find more than KEEP_BYTES free. A guess at the time between two bursts."""
MMAP_BYTES = 32 * 1024 * 1024
"""Blocks from this size on are mapped and unmapped one by one; the largest value that glibc allows."""

# Names and numbers of <malloc.h>.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> bool:
    """Make the C library keep freed memory, for the whole process; returns False if the library is not glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_TRIM_THRESHOLD, KEEP_BYTES)) and bool(mallopt(M_MMAP_THRESHOLD, MMAP_BYTES))


class _Mallinfo2(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks",
                     "keepcost")
    )  # fmt: skip


def free_bytes() -> int:
    """Return the free bytes in the C library's heap, most of which are resident.

    It is 0 where the library does not report them (before glibc 2.33, other libraries). Takes 0.1 to 0.2 ms.
    """
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        return 0
    mallinfo2.restype = _Mallinfo2
    return int(mallinfo2().fordblks)


def give_back() -> None:
    """Return all free memory of the heap to the system, including free memory in its middle.

    It takes 0.07 ms of CPU for each MB (41 ms for 570 MB, 2 shared cores, 2026-11-22), during which other threads that
    allocate more than a kilobyte have to wait. It is called once after a burst, not with every request.
    """
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


class Unused:
    """Detects that memory has been free for so long that it can be returned."""

    def __init__(self, looks: int = UNUSED_LOOKS, keep_bytes: int = KEEP_BYTES) -> None:
        self._looks = looks
        self._keep_bytes = keep_bytes
        self._seen = 0

    def look(self, free: int) -> bool:
        """Note that ``free`` bytes are free now; returns whether too much was free at each of the last looks.

        After a look that returns True, counting starts again.
        """
        self._seen = self._seen + 1 if free > self._keep_bytes else 0
        if self._seen < self._looks:
            return False
        self._seen = 0
        return True


async def give_back_unused(
    free: Callable[[], int] = free_bytes,
    trim: Callable[[], object] = give_back,
    look_every_s: float = LOOK_EVERY_S,
) -> None:
    """Return unused memory to the system, forever; in a thread, so that only users of the heap have to wait."""
    unused = Unused()
    while True:
        await asyncio.sleep(look_every_s)
        if unused.look(free()):
            await asyncio.to_thread(trim)


GC_YOUNG, GC_MIDDLE, GC_OLD = 2_000, 10, 10
"""Thresholds of the garbage collector. It never walks the prefix index (``scorers.index.tree``) or the objects that
were made before serving; it walks the requests in flight: with 5,000 of them a young collection takes 0.2 ms, a full
one 3 ms. The threshold is three times Python's own, since most of a request is freed without the collector; a higher
one makes fewer pauses, but longer ones. Source: decisions at 100 endpoints, 5,000 in flight, 2026-11-21: p99.99 0.9 ms;
with a threshold of 5,000, 2.1 ms."""


def collect_rarely() -> None:
    """Set the garbage collector for serving; call it once all long-lived objects exist."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_YOUNG, GC_MIDDLE, GC_OLD)
