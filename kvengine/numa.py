"""Which CPUs are near a device, as sysfs says it.

Source: the kernel's Documentation/ABI/testing/sysfs-bus-pci (``numa_node``) and sysfs-devices-node (``cpulist``).
"""

from __future__ import annotations

import os
from pathlib import Path


def cpus_near(pci_address: str | None, root: Path = Path("/")) -> frozenset[int]:
    """The CPUs of the node that the device at ``pci_address`` ("0000:1b:00.0") is on, as far as this process may run
    on them; empty when that is not known, and then it does not matter, or cannot be helped."""
    if pci_address is None or not hasattr(os, "sched_getaffinity"):
        return frozenset()
    try:
        node = int((root / "sys/bus/pci/devices" / pci_address.lower() / "numa_node").read_text())
        if node < 0:  # a machine with one node, or a firmware that does not say
            return frozenset()
        near = parsed((root / f"sys/devices/system/node/node{node}/cpulist").read_text())
    except (OSError, ValueError):
        return frozenset()
    return near & frozenset(os.sched_getaffinity(0))


def parsed(text: str) -> frozenset[int]:
    """The numbers of a list such as "0-3,8-11". Raises: ValueError."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            cpus.update(range(int(first), int(last or first) + 1))
    return frozenset(cpus)


def stay_on(cpus: frozenset[int]) -> None:
    """Keep the calling thread on ``cpus``; what it touches first is then near them. Does nothing for none."""
    if cpus:
        os.sched_setaffinity(0, cpus)
