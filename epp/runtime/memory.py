"""How a serving process deals with memory; for commands to call, not for libraries.

Keep freed memory for the next request, instead of giving it back to the system and faulting it in again; give it back
when nobody has needed it for a while, as after a burst. glibc alone gives back the heap's end only, and one small block
that is in use up there keeps everything below it.

A prompt of 400 KB is copied six times on its way (frame, message, text, canonical bytes, digest, answer). glibc returns
each block to the system as soon as it is freed, and the system zeroes and maps it again page by page: that cost 4 times
as much as everything else the exchange does.

Source: one exchange with a 400 KB chat, without transport: 676 µs before, 150 µs after (2 shared cores, Python 3.11,
glibc, 2026-11-21). 120 KB and less: no difference. Price: up to KEEP_BYTES of memory that nobody uses, and for
UNUSED_LOOKS seconds more than that.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections.abc import Callable

KEEP_BYTES = 64 * 1024 * 1024
"""Free memory beyond this goes back to the system. Guess: several of the largest prompts."""
LOOK_EVERY_S = 1.0
UNUSED_LOOKS = 10
"""So many looks in a row must find more than KEEP_BYTES free. Guess: the next burst comes sooner, or not so soon."""
MMAP_BYTES = 32 * 1024 * 1024
"""Blocks from this size on are mapped, and unmapped, one by one: the most that glibc allows."""

# Names and numbers of <malloc.h>.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> bool:
    """Ask the C library to keep freed memory, for the whole process; False where it is not glibc."""
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
    """What lies free in the C library's heap, most of it resident; 0 where the library does not say (before glibc 2.33,
    other libraries). Takes 0.1 to 0.2 ms."""
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        return 0
    mallinfo2.restype = _Mallinfo2
    return int(mallinfo2().fordblks)


def give_back() -> None:
    """Give all free memory of the heap back to the system, in its middle, too. Takes 0.07 ms of CPU for each MB (41 ms
    for 570 MB, 2 shared cores, 2026-11-22), in which other threads wait if they ask the heap for more than a
    kilobyte: once after a burst, instead of with every request."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


class Unused:
    """Tells when memory has been free for so long that nobody will miss it."""

    def __init__(self, looks: int = UNUSED_LOOKS, keep_bytes: int = KEEP_BYTES) -> None:
        self._looks = looks
        self._keep_bytes = keep_bytes
        self._seen = 0

    def look(self, free: int) -> bool:
        """Whether more than is kept was free at each of the last looks, at this one ``free`` bytes; if so, they begin
        anew."""
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
    """Give back what is free and not needed, for ever; in a thread, so that others wait for nothing but the heap."""
    unused = Unused()
    while True:
        await asyncio.sleep(look_every_s)
        if unused.look(free()):
            await asyncio.to_thread(trim)


GC_YOUNG, GC_MIDDLE, GC_OLD = 2_000, 10, 10
"""Thresholds of the collector. It never walks the prefix index (``scorers.index.tree``), nor what was made before
serving, so what is left are the requests in flight: with 5,000 of them a young collection takes 0.2 ms, a full one 3.
Three times Python's own threshold, since most of a request is freed without it; a higher one makes fewer pauses, but
longer ones. Source: decisions at 100 endpoints, 5,000 in flight, 2026-11-21: p99.99 0.9 ms; with a threshold of 5,000,
2.1 ms."""


def collect_rarely() -> None:
    """Set the garbage collector for serving; to be called once everything is made."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_YOUNG, GC_MIDDLE, GC_OLD)
