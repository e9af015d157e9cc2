"""One worker's host memory: taken at once, touched in the background, served from as far as it is ready.

An anonymous private mapping: it has no name that could be left behind, and the kernel takes it back however the process
ends.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import threading
from collections.abc import Callable

from kvengine.errors import NoMemory

log = logging.getLogger(__name__)

PIECE_BYTES = 64 << 20
"""Touched and pinned at a time. A larger piece keeps the driver's lock longer, and steps that launch
kernels wait for it."""

Pin = Callable[[int, int], None]
"""Makes (address, bytes) known to the device. Raises: NoMemory."""


class Arena:
    """``slots`` slots of ``slot_bytes``; the first ``ready_slots`` of them may be used. Owner: the worker.

    Invariant: ``ready_slots`` never falls.
    """

    def __init__(self, slots: int, slot_bytes: int, pin: Pin | None = None) -> None:
        """Raises: NoMemory when the kernel does not give the addresses."""
        self.slots = slots
        self.slot_bytes = slot_bytes
        self.ready_slots = 0
        self._pin = pin
        self._closing = threading.Event()
        try:
            self._memory = mmap.mmap(-1, max(1, slots * slot_bytes), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError, ValueError) as error:
            raise NoMemory(f"{slots * slot_bytes:,} bytes of host memory cannot be had: {error}") from error
        self._view = (ctypes.c_char * len(self._memory)).from_buffer(self._memory)
        self.address = ctypes.addressof(self._view)
        self._toucher = threading.Thread(target=self._make_ready, name="kvengine-arena", daemon=True)

    def start(self) -> None:
        """Begin to make slots ready, from the first on."""
        self._toucher.start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until every slot is ready, or none will be any more; False when that took too long."""
        self._toucher.join(timeout_s)
        return not self._toucher.is_alive()

    def close(self) -> None:
        """Give the memory back. Nothing may read or write it any more. Never raises; the second call does nothing."""
        self._closing.set()
        if self._toucher.is_alive():
            self._toucher.join()
        self.address = 0
        self.ready_slots = 0
        del self._view
        self._view = (ctypes.c_char * 0)()
        try:
            self._memory.close()
        except BufferError:  # somebody holds a view: the mapping goes with it
            log.warning("host memory is still in use, and is given back when that ends")

    def _make_ready(self) -> None:
        size = self.slots * self.slot_bytes
        for begin in range(0, size, PIECE_BYTES):
            if self._closing.is_set():
                return
            end = min(begin + PIECE_BYTES, size)
            try:
                ctypes.memset(self.address + begin, 0, end - begin)
                if self._pin is not None:
                    self._pin(self.address + begin, end - begin)
            except Exception:
                log.exception("host memory from byte %d on cannot be used; %d of %d slots can", begin, self.ready_slots,
                              self.slots)  # fmt: skip
                return
            self.ready_slots = end // self.slot_bytes
