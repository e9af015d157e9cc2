"""Chooses how to copy: both ways are checked with known bytes at the start, then measured on this device."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from kvengine.copiers.base import Direction, JobId
from kvengine.copiers.cuda import ALWAYS, NEVER, CudaCopier, KernelBelow
from kvengine.copiers.descriptors import HostPieces
from kvengine.copiers.verify import difference, ended
from kvengine.cuda.driver import DeviceError, Driver, Stream
from kvengine.layout import Fragments

log = logging.getLogger(__name__)

KIB, GB = 1024, 1e9
SIZES = (4 * KIB, 8 * KIB, 16 * KIB, 24 * KIB, 32 * KIB, 64 * KIB)
"""Fragment sizes to measure, around the size below which batched copies by the copy engines are slow. Source: vLLM's
issue 42212: 4 to 7 GB/s up to 24 KiB on an H100, 44 and more from 28 KiB on."""
BUDGET_S = 0.5
"""Most time that the measurements take."""
SCRATCH_BYTES = 8 << 20
FEWEST = 16
"""Fewest fragments for a measurement. A size of which fewer fit is not measured: the arena is too small to matter."""
JOBS = 4
"""Jobs submitted at a time, so that the time a thread takes to wake up does not count."""
BETTER = 1.05
"""How many times faster the kernel must be: it takes some of the device's processors from the engine. A guess."""


class Unusable(DeviceError):
    """The device copies incorrectly: no KV may be stored with it."""


class Timing(NamedTuple):
    """How long both ways take for the same bytes. Units: seconds."""

    direct_s: float
    kernel_s: float


def threshold(timings: Mapping[int, Timing]) -> int:
    """Return the fragment size in bytes below which the kernel is the better way.

    The kernel must be better at every measured size below the threshold, beginning with the smallest. The threshold
    lies halfway to the next larger size, since the change is somewhere between the two.
    """
    below = NEVER
    sizes = sorted(timings)
    for number, size in enumerate(sizes):
        if timings[size].direct_s < BETTER * timings[size].kernel_s:
            break
        below = (size + sizes[number + 1]) // 2 if number + 1 < len(sizes) else size + 1
    return below


def opened(
    driver: Driver, compute: Callable[[], Stream], pieces: HostPieces, ready_bytes: int, budget_s: float = BUDGET_S
) -> CudaCopier:
    """Return a copier that has passed the check, with thresholds that were measured on this device.

    ``ready_bytes`` of pinned memory, from the start of ``pieces`` on, are overwritten.

    Raises: DeviceError; Unusable when the device returns other bytes than it was given.
    """
    size = min(ready_bytes // 2, SCRATCH_BYTES)
    device = driver.device_memory(size)
    copier = CudaCopier(driver, compute, pieces)
    try:
        reason = tried(copier, device, pieces.origin, size, driver.name)
        if reason is not None:
            log.warning("%s: all copies go by the copy engines, also small ones: %s", driver.name, reason)
        else:
            until = time.monotonic() + budget_s
            found = {each: measured(copier, each, device, pieces.origin, size, until) for each in Direction}
            copier.kernel_below = KernelBelow(threshold(found[Direction.LOAD]), threshold(found[Direction.STORE]))
            log.info("%s", sentence(driver.name, copier.kernel_below, found, size * JOBS))
    except BaseException:
        copier.close()
        raise
    finally:
        driver.free_device(device)
    return copier


def tried(copier: CudaCopier, device: int, host: int, size_bytes: int, name: str) -> str | None:
    """Copy known bytes in both ways and both directions; return why the kernel must not be used, or None.

    Raises: Unusable when the copy engines must not be used either.
    """
    wrong = difference(copier, device, host, size_bytes)
    if wrong is not None:
        raise Unusable(f"copies to and from {name}: {wrong}")
    reason = copier.can_stage()
    if reason is None:
        copier.kernel_below = KernelBelow(ALWAYS, ALWAYS)
        reason = difference(copier, device, host, size_bytes)
        copier.kernel_below = KernelBelow()
    if copier.dead:
        raise Unusable(f"{name} does not answer any more after known bytes were copied: {reason}")
    return reason


def measured(
    copier: CudaCopier, direction: Direction, device: int, host: int, size_bytes: int, until: float
) -> dict[int, Timing]:
    """Measure both ways at each fragment size, until the time ``until``."""
    found: dict[int, Timing] = {}
    for size in SIZES:
        if size_bytes < FEWEST * size:
            break
        fragments = scattered(device, host, size_bytes, size)
        times = []
        for below in (KernelBelow(), KernelBelow(ALWAYS, ALWAYS)):
            copier.kernel_below = below
            best = float("inf")
            for _ in range(2):
                if time.monotonic() > until:
                    return found
                started = time.monotonic()
                for job in range(JOBS):
                    copier.submit(JobId(job), direction, fragments)
                if not ended(copier, JOBS):
                    raise Unusable(f"{direction.value}s in fragments of {size:,} bytes failed")
                best = min(best, time.monotonic() - started)
            times.append(best)
        copier.kernel_below = KernelBelow()
        found[size] = Timing(*times)
    return found


def scattered(device: int, host: int, size_bytes: int, fragment_bytes: int) -> Fragments:
    """Return fragments that are in order in host memory, and in an order without neighbors on the device."""
    count = size_bytes // fragment_bytes
    at = np.arange(count, dtype=np.int64)
    elsewhere = np.concatenate((at[1::2], at[::2]))
    sizes = np.full(count, fragment_bytes, dtype=np.int64)
    return Fragments(device + elsewhere * fragment_bytes, host + at * fragment_bytes, sizes)


def sentence(name: str, below: KernelBelow, found: Mapping[Direction, Mapping[int, Timing]], moved_bytes: int) -> str:
    """Return the log line that states the choice and the measurements behind it."""
    parts = []
    for direction, timings in found.items():
        chosen = below.of(direction)
        what = f"by the kernel below {chosen / KIB:g} KiB" if chosen else "by the copy engines"
        seen = ", ".join(
            f"{size // KIB}: {moved_bytes / each.direct_s / GB:.1f}/{moved_bytes / each.kernel_s / GB:.1f}"
            for size, each in timings.items()
        )
        parts.append(f"{direction.value}s {what} (KiB: GB/s of the copy engines/of the kernel; {seen or 'no time'})")
    return f"{name}: " + "; ".join(parts)
