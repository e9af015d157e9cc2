"""Small fragments by way of a staging ring on the device: large copies cross the bus, and a kernel does the small ones.

Two streams let the kernel move one load while the next one crosses the bus:

    load    copies: host ─► place ─► filled        kernels: filled ─► place ─► blocks ─► emptied
    store   kernels: blocks ─► place ─► filled     copies: filled ─► place ─► host ─► emptied

A place is filled again only after it was emptied. The kernel reads the list of pieces to move from a table in pinned
host memory. There are many more tables than places, since this thread itself must wait before it overwrites a table.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np

from kvengine.copiers.base import Direction
from kvengine.copiers.descriptors import HostPieces, batches, ends
from kvengine.copiers.ring import Ring
from kvengine.copiers.staging import Load, staged
from kvengine.cuda.driver import DeviceError, Driver, Stream
from kvengine.layout import Fragments

NUMBER_BYTES = 8


class RingSize(NamedTuple):
    """The size of one direction's ring. Guesses: 32 MiB of the device's memory, about 0.6 ms of a fast bus."""

    places: int = 8
    place_bytes: int = 4 << 20
    tables: int = 32
    table_moves: int = 4096
    """Most pieces that pass through a place at a time."""

    @property
    def table_bytes(self) -> int:
        """The size of one table."""
        return self.table_moves * 3 * NUMBER_BYTES


RING_SIZE = RingSize()


class Staging:
    """One direction's staging ring. Owner: the thread that begins that direction's copies."""

    def __init__(self, driver: Driver, direction: Direction, copies: Stream, kernels: Stream, size: RingSize) -> None:
        """Allocate the ring and load the kernel. Raises: DeviceError when the memory or the kernel is not available."""
        reason = driver.can_move()
        if reason is not None:
            raise DeviceError(reason)
        self._driver = driver
        self._direction = direction
        self._copies, self._kernels = copies, kernels
        self._size = size
        self._ring, self._tables = Ring(size.places), Ring(size.tables)
        self._filled = [driver.event() for _ in range(size.places)]
        self._emptied = [driver.event() for _ in range(size.places)]
        self._read = [driver.event() for _ in range(size.tables)]
        self._memory = driver.device_memory(size.places * size.place_bytes)
        try:
            self._table_memory = driver.host_memory(size.tables * size.table_bytes)
        except DeviceError:
            driver.free_device(self._memory)
            raise

    def begin(self, fragments: Fragments, pieces: HostPieces) -> None:
        """Begin the copies. Raises: DeviceError or ValueError, after which some copies may have begun.

        After an error, begin nothing else until both streams are idle and ``clear`` was called.
        """
        driver, size = self._driver, self._size
        for load in staged(fragments, pieces, most_bytes=size.place_bytes, most_moves=size.table_moves):
            place = self._ring.take()
            filled, emptied = self._filled[place.number], self._emptied[place.number]
            at = self._memory + place.number * size.place_bytes
            loading = self._direction is Direction.LOAD
            fills, empties = (self._copies, self._kernels) if loading else (self._kernels, self._copies)
            if place.free_after is not None:
                driver.wait(fills, place.free_after)
            self._copy(load, at) if loading else self._move(load, at)
            driver.record(filled, fills)
            driver.wait(empties, filled)
            self._move(load, at) if loading else self._copy(load, at)
            driver.record(emptied, empties)
            self._ring.leave(place.number, emptied)

    def clear(self) -> None:
        """Make all places and tables free; both streams are idle."""
        self._ring.clear()
        self._tables.clear()

    def close(self) -> None:
        """Free the memory; both streams are idle. Raises: DeviceError."""
        self._driver.destroy([], [*self._filled, *self._emptied, *self._read])
        self._driver.free_device(self._memory)
        self._driver.free_host(self._table_memory)

    def _copy(self, load: Load, at: int) -> None:
        to, source = ends(self._direction, load.spans.device + at, load.spans.host)
        for part in batches(len(to)):
            self._driver.copy(self._copies, to[part], source[part], load.spans.sizes[part])

    def _move(self, load: Load, at: int) -> None:
        table = self._tables.take()
        if table.free_after is not None:
            self._driver.block_until(table.free_after)
        to, source = ends(self._direction, load.device, load.offsets + at)
        rows = np.concatenate((to, source, load.sizes))
        address = self._table_memory + table.number * self._size.table_bytes
        ctypes.memmove(address, rows.ctypes.data, rows.nbytes)
        self._driver.move(self._kernels, address, len(to))
        self._driver.record(self._read[table.number], self._kernels)
        self._tables.leave(table.number, self._read[table.number])
