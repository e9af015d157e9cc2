"""Checks a copier: known bytes are copied to the device and back, at many kinds of addresses and sizes."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from kvengine.copiers.base import Copier, Direction, JobId
from kvengine.layout import Fragments

Bytes = npt.NDArray[np.uint8]

PATIENCE_S = 10.0
"""How long to wait for copies that usually take milliseconds."""
SIZES = (1, 3, 16, 17, 250, 256, 1000, 4096, 4097, 8192, 24576, 65536, 100_003)
"""Fragment sizes in bytes: multiples of what a kernel moves at a time, and others; pages, and one byte more."""


def ended(copier: Copier, count: int, patience_s: float = PATIENCE_S) -> bool:
    """Wait for ``count`` jobs; return whether all of them succeeded, and in time."""
    until = time.monotonic() + patience_s
    fine = True
    while count and time.monotonic() < until:
        for done in copier.poll():
            count -= 1
            fine = fine and done.ok
        if count:
            time.sleep(0.0001)
    return fine and not count


def difference(copier: Copier, device: int, host: int, size_bytes: int, *, at_once: int = 4) -> str | None:
    """Return what is wrong with the copier, or None.

    Overwrites ``size_bytes`` of the device's memory and twice as many of host memory. The copier must have no other
    jobs.
    """
    there, back = memory(host, size_bytes), memory(host + size_bytes, size_bytes)
    random = np.random.default_rng(size_bytes)
    for attempt in range(2):  # the second try detects bytes left over from the first
        there[:] = random.integers(0, 256, size_bytes, dtype=np.uint8)
        back[:] = ~there
        out = odd(device, host, size_bytes)
        home = Fragments(out.device, out.host + size_bytes, out.sizes)
        for direction, fragments in ((Direction.LOAD, out), (Direction.STORE, home)):
            for part in range(at_once):
                copier.submit(JobId(part), direction, Fragments(*(each[part::at_once] for each in fragments)))
            if not ended(copier, at_once):
                return f"a {direction.value} of known bytes failed, or did not end within {PATIENCE_S:.0f} s"
        copied = np.zeros(size_bytes, dtype=bool)
        for begin, size in zip((out.host - host).tolist(), out.sizes.tolist(), strict=True):
            copied[begin : begin + size] = True
        wrong = np.flatnonzero(np.where(copied, back != there, back == there))
        if len(wrong):
            return (
                f"{len(wrong):,} of {size_bytes:,} bytes came back wrong, from byte {wrong[0]:,} on, try {attempt + 1}"
            )
    return None


def odd(device: int, host: int, size_bytes: int) -> Fragments:
    """Return fragments of many sizes with small gaps, in shuffled order; the last ones come first on the device."""
    pieces = list(_places(size_bytes))
    order = np.random.default_rng(1).permutation(len(pieces))
    begins, sizes = (np.array(each, dtype=np.int64)[order] for each in zip(*pieces, strict=True))
    return Fragments(device + size_bytes - begins - sizes, host + begins, sizes)


def memory(address: int, size_bytes: int) -> Bytes:
    """Return a writable view of host memory."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size_bytes).from_address(address))


def _places(size_bytes: int) -> Iterator[tuple[int, int]]:
    begin = number = 0
    while begin < size_bytes:
        size = min(SIZES[number % len(SIZES)], size_bytes - begin)
        yield begin, size
        begin += size + (number % 3) * 8  # a third of them are adjacent
        number += 1
