"""What a copier needs of a device. CUDA is one; the tests have another, in host memory, that watches for mistakes.

Work on one stream goes in order. Work on different streams goes in any order but where ``wait`` says otherwise.
"""

from __future__ import annotations

from typing import NewType, Protocol

from kvengine.errors import KVEngineError
from kvengine.layout import Addresses

Stream = NewType("Stream", int)
Event = NewType("Event", int)


class DeviceError(KVEngineError):
    """The device, or its driver, refused. What had been begun may still run."""


class Driver(Protocol):
    """Any thread may call. Every method raises DeviceError; those that only begin work never wait for it."""

    name: str
    """Of the device, for people."""
    pci_address: str | None
    """Where sysfs has it; None when it is nowhere."""

    def stream(self, *, urgent: bool) -> Stream:
        """A new one. Urgent ones go before the others, and before the engine's own."""

    def event(self) -> Event:
        """A new one, which counts as reached until it is recorded."""

    def destroy(self, streams: list[Stream], events: list[Event]) -> None:
        """Nothing runs on them any more."""

    def record(self, event: Event, stream: Stream) -> None:
        """``event`` is reached when all that was begun on ``stream`` before has ended."""

    def wait(self, stream: Stream, event: Event) -> None:
        """What is begun on ``stream`` from now on begins after ``event``, as it was recorded last."""

    def reached(self, event: Event) -> bool:
        """Whether it is. Does not wait."""

    def block_until(self, event: Event) -> None:
        """Wait in this thread."""

    def synchronize(self, stream: Stream) -> None:
        """Wait in this thread until ``stream`` has nothing to do."""

    def copy(self, stream: Stream, to: Addresses, source: Addresses, sizes: Addresses) -> None:
        """Begin copies, in any order among themselves; the arrays may be changed on return. Host memory must be pinned,
        and each copy within one pinned piece."""

    def move(self, stream: Stream, table: int, count: int) -> None:
        """Begin ``count`` copies on the device by a kernel. ``table``: the address, in pinned host memory, of three
        rows of ``count`` 64-bit numbers: to, from, bytes; it must stay until they have ended."""

    def can_move(self) -> str | None:
        """Make the kernel ready; why it cannot be had, or None."""

    def pin(self, address: int, size_bytes: int) -> None:
        """Make a piece of host memory known to the device."""

    def unpin(self, address: int) -> None:
        """The piece that begins there."""

    def device_memory(self, size_bytes: int) -> int:
        """The address of new memory on the device."""

    def host_memory(self, size_bytes: int) -> int:
        """The address of new pinned host memory, which kernels can read."""

    def free_device(self, address: int) -> None:
        """What ``device_memory`` gave."""

    def free_host(self, address: int) -> None:
        """What ``host_memory`` gave."""

    def close(self) -> None:
        """Let the device go. Never raises."""
