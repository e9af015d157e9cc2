"""The interface of a device, as copiers need it.

CUDA implements it; so does a device of the tests, in host memory, which detects mistakes. Work on one stream runs in
order. Work on different streams runs in any order, except where ``wait`` orders it.
"""

from __future__ import annotations

from typing import NewType, Protocol

from kvengine.errors import KVEngineError
from kvengine.layout import Addresses

Stream = NewType("Stream", int)
Event = NewType("Event", int)


class DeviceError(KVEngineError):
    """The device or its driver refused a call. Work that had begun may still be running."""


class Driver(Protocol):
    """A device, whose methods any thread may call. Each method except ``close`` can raise DeviceError.

    Methods that begin work never wait for it.
    """

    name: str
    """The device's name, for log lines and errors."""
    pci_address: str | None
    """The device's PCI address in sysfs; None if it has none."""

    def stream(self, *, urgent: bool) -> Stream:
        """Create a stream. Urgent streams run before the others, and before the engine's own."""

    def event(self) -> Event:
        """Create an event, which counts as reached until it is recorded."""

    def destroy(self, streams: list[Stream], events: list[Event]) -> None:
        """Destroy streams and events that nothing uses any more."""

    def record(self, event: Event, stream: Stream) -> None:
        """Record ``event`` on ``stream``: it is reached when all work that was begun there before has ended."""

    def wait(self, stream: Stream, event: Event) -> None:
        """Make all work that is begun on ``stream`` from now on wait for ``event``, as it was last recorded."""

    def reached(self, event: Event) -> bool:
        """Return whether ``event`` is reached. Does not wait."""

    def block_until(self, event: Event) -> None:
        """Block this thread until ``event`` is reached."""

    def synchronize(self, stream: Stream) -> None:
        """Block this thread until ``stream`` is idle."""

    def copy(self, stream: Stream, to: Addresses, source: Addresses, sizes: Addresses) -> None:
        """Begin copies on ``stream``, in any order among themselves.

        The arrays may be changed on return. Host memory must be pinned, and each copy must lie within one pinned piece.
        """

    def move(self, stream: Stream, table: int, count: int) -> None:
        """Begin ``count`` copies within the device by a kernel.

        ``table``: the address, in pinned host memory, of three rows of ``count`` 64-bit numbers: destinations, sources,
        sizes in bytes. It must stay allocated and unchanged until the copies have ended.
        """

    def can_move(self) -> str | None:
        """Prepare the kernel of ``move``; return why it is not available, or None."""

    def pin(self, address: int, size_bytes: int) -> None:
        """Register a piece of host memory with the device."""

    def unpin(self, address: int) -> None:
        """Unregister the piece of host memory that begins at ``address``."""

    def device_memory(self, size_bytes: int) -> int:
        """Allocate memory on the device, and return its address."""

    def host_memory(self, size_bytes: int) -> int:
        """Allocate pinned host memory that kernels can read, and return its address."""

    def free_device(self, address: int) -> None:
        """Free memory that ``device_memory`` allocated."""

    def free_host(self, address: int) -> None:
        """Free memory that ``host_memory`` allocated."""

    def close(self) -> None:
        """Release the device when it is no longer used. Never raises."""
