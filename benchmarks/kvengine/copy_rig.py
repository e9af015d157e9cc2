"""The two places that ``bench_copy`` measures: a CUDA device, and host memory alone."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable

import numpy as np

from kvengine.arena import PIECE_BYTES, Arena
from kvengine.copiers import Copier, Direction, HostCopier, choice
from kvengine.copiers.base import JobId
from kvengine.copiers.cuda import CudaCopier, KernelBelow
from kvengine.copiers.descriptors import HostPieces
from kvengine.cuda.bindings import CudaDriver
from kvengine.cuda.driver import Driver, Stream
from kvengine.layout import Fragments

RAW_BYTES = PIECE_BYTES
"""Size of one raw copy: the piece of memory that is pinned at once."""
PATIENCE_S = 120


def seconds(copier: Copier, work: list[tuple[Direction, Fragments]]) -> float:
    """Return the seconds from the first submission to the end of the last job."""
    began = time.perf_counter()
    for number, (direction, fragments) in enumerate(work):
        copier.submit(JobId(number), direction, fragments)
    left = len(work)
    while left:
        for done in copier.poll():
            left -= 1
            if not done.ok:
                raise RuntimeError(f"{done.direction.value} {done.job} failed")
        if time.perf_counter() - began > PATIENCE_S:
            raise RuntimeError(f"{left} jobs did not end within {PATIENCE_S} s")
        if left:
            time.sleep(0.00002)
    return time.perf_counter() - began


class HostRig:
    """A rig with host memory on both sides."""

    kind = "host"

    def __init__(self, room_bytes: int) -> None:
        self._memory = np.ones(2 * room_bytes, dtype=np.uint8)
        self.device = self._memory.ctypes.data
        began = time.perf_counter()
        self.arena = Arena(2 * room_bytes // PIECE_BYTES, PIECE_BYTES)
        self.arena.start()
        self.copier: Copier = HostCopier()
        self.arena.wait_for_first()
        one = Fragments(*(np.array([each], dtype=np.int64) for each in (self.device, self.host, 4096)))
        seconds(self.copier, [(Direction.LOAD, one)])
        self.first_load_s = time.perf_counter() - began
        self.arena.wait()
        self.name = "host memory on both sides"
        self.chosen = "memcpy, a thread for each direction"

    @property
    def host(self) -> int:
        return self.arena.address

    def raw_s(self, directions: list[Direction], room_bytes: int) -> float:
        """Return the seconds for the same bytes by the largest possible copies, in each direction."""
        began = time.perf_counter()
        threads = [threading.Thread(target=self._raw, args=(each, room_bytes)) for each in directions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - began

    def _raw(self, direction: Direction, room_bytes: int) -> None:
        for at in range(0, room_bytes, RAW_BYTES):
            shift = at + (room_bytes if direction is Direction.STORE else 0)
            ends = (self.device + shift, self.host + shift)
            ctypes.memmove(*(ends if direction is Direction.LOAD else ends[::-1]), RAW_BYTES)

    def close(self) -> None:
        self.copier.close()
        self.arena.close()


class CudaRig:
    """A rig with a CUDA device on one side."""

    kind = "cuda"

    def __init__(self, room_bytes: int, driver: Driver, compute: Callable[[], Stream]) -> None:
        self.driver = driver
        began = time.perf_counter()
        self.arena = Arena(2 * room_bytes // PIECE_BYTES, PIECE_BYTES, self.driver)
        self.arena.start()
        ready = self.arena.wait_for_first()
        pieces = HostPieces(self.arena.address, PIECE_BYTES)
        self.copier: CudaCopier = choice.opened(self.driver, compute, pieces, ready)
        self.device = self.driver.device_memory(2 * room_bytes)
        one = Fragments(*(np.array([each], dtype=np.int64) for each in (self.device, self.host, 4096)))
        seconds(self.copier, [(Direction.LOAD, one)])
        self.first_load_s = time.perf_counter() - began
        self.arena.wait()
        self._best = self.copier.kernel_below
        self._streams = {each: self.driver.stream(urgent=each is Direction.LOAD) for each in Direction}
        self.name = driver.name
        below = self._best
        self.chosen = f"the kernel below {below.load_bytes:,} bytes (loads) and {below.store_bytes:,} (stores)"

    @property
    def host(self) -> int:
        return self.arena.address

    def by(self, below: KernelBelow | None) -> None:
        """Use the kernel below these sizes from now on; None for the sizes that were chosen at start."""
        self.copier.kernel_below = self._best if below is None else below

    def raw_s(self, directions: list[Direction], room_bytes: int) -> float:
        """Return the seconds for the same bytes by the largest possible copies, in each direction."""
        began = time.perf_counter()
        for at in range(0, room_bytes, RAW_BYTES):
            for direction in directions:
                shift = at + (room_bytes if direction is Direction.STORE else 0)
                ends = (self.device + shift, self.host + shift)
                to, source = ends if direction is Direction.LOAD else ends[::-1]
                arrays = (np.array([each], dtype=np.int64) for each in (to, source, RAW_BYTES))
                self.driver.copy(self._streams[direction], *arrays)
        for direction in directions:
            self.driver.synchronize(self._streams[direction])
        return time.perf_counter() - began

    def slowdown(self, work: list[tuple[Direction, Fragments]], pairs: int = 7) -> float:
        """Return by which share a bf16 matrix product takes longer while ``work`` repeats: the median over pairs."""
        import torch

        a, b = (torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda") for _ in range(2))
        matmul = timed(lambda: torch.mm(a, b))
        matmul()
        ratios = []
        for _ in range(pairs):
            alone = matmul()
            stop = threading.Event()
            thread = threading.Thread(target=self._repeat, args=(work, stop))
            thread.start()
            time.sleep(0.02)  # until it is under way
            ratios.append(matmul() / alone)
            stop.set()
            thread.join()
        return float(np.median(ratios)) - 1

    def _repeat(self, work: list[tuple[Direction, Fragments]], stop: threading.Event) -> None:
        import torch

        # A stream of its own: its stores must not wait for the products that they are to disturb.
        with torch.cuda.stream(torch.cuda.Stream()):
            while not stop.is_set():
                seconds(self.copier, work)

    def close(self) -> None:
        self.copier.close()
        self.driver.free_device(self.device)
        self.driver.destroy(list(self._streams.values()), [])
        self.arena.close()
        self.driver.close()


Rig = HostRig | CudaRig


def found() -> tuple[Driver, Callable[[], Stream]]:
    """Return the first CUDA device, and the stream on which torch computes there. Raises: DeviceError, ImportError."""
    import torch

    driver = CudaDriver()
    driver.name += f", driver for CUDA {driver.version // 1000}.{driver.version % 1000 // 10}"
    return driver, lambda: Stream(torch.cuda.current_stream().cuda_stream)


def timed(function: Callable[[], object]) -> Callable[[], float]:
    """Return a function that measures the device's milliseconds of 50 calls of ``function``."""
    import torch

    def run() -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(50):
            function()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))

    return run
