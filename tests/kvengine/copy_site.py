"""A site to test a copier at: its device, a stream that computes there, and memory on both sides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from kvengine.copiers import Copier, HostCopier
from kvengine.copiers.cuda import ALWAYS, NEVER, CudaCopier, KernelBelow
from kvengine.copiers.cuda_gather import RingSize
from kvengine.copiers.descriptors import HostPieces
from kvengine.copiers.verify import memory
from kvengine.cuda.bindings import CudaDriver
from kvengine.cuda.driver import DeviceError, Driver, Stream
from tests.kvengine.memory_driver import MemoryDriver

Bytes = npt.NDArray[np.uint8]

PIECE_BYTES = 1 << 14
"""Bytes that are pinned at a time here: few, so that fragments cross the borders."""
RING = RingSize(places=3, place_bytes=6000, tables=4, table_moves=50)
WAYS = {"direct": NEVER, "kernel": ALWAYS, "mixed": 300}
KINDS = ("host", *(f"{device}-{way}" for device in ("memory", "cuda") for way in WAYS))


class Site:
    """A host whose processor is the device: everything is computed before anything is submitted."""

    def __init__(self) -> None:
        self.copier: Copier = HostCopier()
        self._owned: list[Bytes] = []

    def device(self, size_bytes: int) -> int:
        return self.host(size_bytes)

    def host(self, size_bytes: int) -> int:
        self._owned.append(np.zeros(size_bytes, dtype=np.uint8))
        return self._owned[-1].ctypes.data

    def launch(self, address: int, data: Bytes) -> Callable[[], None]:
        """Have the device compute ``data``, where work can be held back only after the returned function is called."""
        memory(address, len(data))[:] = data
        return lambda: None

    def settled(self) -> None:
        """Wait until everything is computed."""

    def read(self, address: int, size_bytes: int) -> Bytes:
        """Return what the device has there, after everything is computed."""
        return memory(address, size_bytes).copy()

    def free(self) -> None:
        """Free all memory that was requested."""
        self._owned.clear()

    def close(self) -> None:
        self.copier.close()


class DeviceSite(Site):
    """A site whose device is behind the driver interface."""

    def __init__(self, driver: Driver, way: str) -> None:
        self.driver = driver
        self.compute: Stream = driver.stream(urgent=False)
        self._size = 8 << 20
        self._used = 0
        self._arena = np.zeros(self._size + 4096, dtype=np.uint8)
        self._base = -(-self._arena.ctypes.data // 4096) * 4096
        for begin in range(0, self._size, PIECE_BYTES):
            driver.pin(self._base + begin, PIECE_BYTES)
        self._device: list[int] = []
        self.cuda = CudaCopier(driver, lambda: self.compute, HostPieces(self._base, PIECE_BYTES), RING)
        self.copier = self.cuda
        assert self.cuda.can_stage() is None
        self.cuda.kernel_below = KernelBelow(WAYS[way], WAYS[way])
        self._room = driver.host_memory(1 << 20)
        self._written = 0

    def device(self, size_bytes: int) -> int:
        self._device.append(self.driver.device_memory(size_bytes))
        return self._device[-1]

    def host(self, size_bytes: int) -> int:
        address = self._base + self._used
        self._used += size_bytes
        assert self._used <= self._size
        return address

    def launch(self, address: int, data: Bytes) -> Callable[[], None]:
        room = self._take_room(len(data))
        memory(room, len(data))[:] = data
        release = self._hold()
        self._copy(address, room, len(data))
        return release

    def settled(self) -> None:
        self.driver.synchronize(self.compute)
        self._written = 0

    def read(self, address: int, size_bytes: int) -> Bytes:
        room = self._take_room(size_bytes)
        self._copy(room, address, size_bytes)
        self.settled()
        return memory(room, size_bytes).copy()

    def free(self) -> None:
        self.settled()
        for address in self._device:
            self.driver.free_device(address)
        self._device.clear()
        self._used = 0

    def close(self) -> None:
        self.copier.close()
        self.free()
        for begin in range(0, self._size, PIECE_BYTES):
            self.driver.unpin(self._base + begin)
        self.driver.free_host(self._room)
        self.driver.destroy([self.compute], [])
        self.driver.close()

    def _take_room(self, size_bytes: int) -> int:
        if self._written + size_bytes > 1 << 20:
            self.settled()
        address = self._room + self._written
        self._written += size_bytes
        return address

    def _copy(self, to: int, source: int, size_bytes: int) -> None:
        self.driver.copy(self.compute, *(np.array([each], dtype=np.int64) for each in (to, source, size_bytes)))

    def _hold(self) -> Callable[[], None]:
        """Keep the stream busy for a while, since a real device cannot be held back."""
        for _ in range(20):
            self._copy(self._room + (1 << 19), self._room, 1 << 19) if self._written < 1 << 18 else None
        return lambda: None


class MemorySite(DeviceSite):
    """Open a device in host memory; mistakes of its callers are reported when it is closed."""

    def __init__(self, way: str) -> None:
        self.memory = MemoryDriver()
        super().__init__(self.memory, way)

    def _hold(self) -> Callable[[], None]:
        return self.memory.hold(self.compute).set

    def close(self) -> None:
        super().close()
        assert self.memory.mistakes == []
        assert self.memory.leftovers() == ""


@contextmanager
def site(kind: str) -> Iterator[Site | None]:
    """Open a site of this kind; None on a machine without such a device."""
    device, _, way = kind.partition("-")
    opened: Site
    if device == "host":
        opened = Site()
    elif device == "memory":
        opened = MemorySite(way)
    else:
        try:
            opened = DeviceSite(CudaDriver(), way)
        except DeviceError:
            yield None
            return
    try:
        yield opened
    finally:
        opened.close()
