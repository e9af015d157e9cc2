"""Which CPUs are near a device, according to sysfs.

Source: the kernel's Documentation/ABI/testing/sysfs-bus-pci (``numa_node``) and sysfs-devices-node (``cpulist``).
"""

from __future__ import annotations

import os
from pathlib import Path


def cpus_near(pci_address: str | None, root: Path = Path("/")) -> frozenset[int]:
    """Return the CPUs on the NUMA node of the device at ``pci_address`` ("0000:1b:00.0").

    Only CPUs that this process may run on are returned. The set is empty when the node is unknown; any CPU will do
    then.
    """
    if pci_address is None or not hasattr(os, "sched_getaffinity"):
        return frozenset()
    try:
        node = int((root / "sys/bus/pci/devices" / pci_address.lower() / "numa_node").read_text())
        if node < 0:  # one node only, or the firmware does not report it
            return frozenset()
        near = parsed((root / f"sys/devices/system/node/node{node}/cpulist").read_text())
    except (OSError, ValueError):
        return frozenset()
    return near & frozenset(os.sched_getaffinity(0))


def parsed(text: str) -> frozenset[int]:
    """Parse a list of CPU numbers such as "0-3,8-11". Raises: ValueError."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def stay_on(cpus: frozenset[int]) -> None:
    """Restrict the calling thread to ``cpus``, so that the memory that it touches first is near them.

    An empty set does nothing.
    """
    if cpus:
        os.sched_setaffinity(0, cpus)
