"""How much host memory one worker may take. A larger request is clamped, with a sentence that names the limit.

Source: proc(5) for ``MemAvailable``, the kernel's cgroup-v1 and cgroup-v2 documentation, setrlimit(2).
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

GIB = 1 << 30
RAM_SHARE = 0.8
"""Share of the available memory that workers may take; the rest is for the engine itself and for the page cache. A
guess."""
MEMLOCK_SHARE = 0.9
"""Share of the lockable memory that a worker may take: the engine and its libraries lock some, too. Source: LMCache's
example for offloading to CPU memory clamps to the same share."""
NO_LIMIT = 1 << 60
"""This number or more means that there is no limit: cgroup v1 writes a number near 2^63 then."""


class Limit(NamedTuple):
    """Something that bounds the memory of this process."""

    what: str
    size_bytes: int


class Grant(NamedTuple):
    """How much host memory a worker may take."""

    size_bytes: int
    sentence: str | None
    """Why this is less than the worker requested; None if it is not less."""


def grant(asked_bytes: int, *, workers_here: int, pinned: bool, root: Path = Path("/")) -> Grant:
    """Return ``asked_bytes``, or the largest share that one of ``workers_here`` workers on this machine may take.

    ``pinned``: the memory will be pinned, so the limit on locked memory applies, too.
    """
    bounds = [Limit(limit.what, limit.size_bytes // workers_here) for limit in shared_limits(root)]
    if pinned:
        bounds += lock_limits()
    least = min(bounds, key=lambda limit: limit.size_bytes, default=None)
    if least is None or least.size_bytes >= asked_bytes:
        return Grant(asked_bytes, None)
    given = max(0, least.size_bytes)
    return Grant(
        given,
        f"{asked_bytes / GIB:.2f} GiB of host memory asked for and {given / GIB:.2f} GiB taken: {least.what}; "
        "give the engine more, or ask for less",
    )


def shared_limits(root: Path = Path("/")) -> Iterator[Limit]:
    """Yield the limits that all processes of this machine or container share."""
    available = _line(root / "proc/meminfo", "MemAvailable:")
    if available is not None:
        size = int(available.split()[0]) * 1024
        share = f"{RAM_SHARE:.0%}"
        yield Limit(f"{share} of the {size / GIB:.2f} GiB that /proc/meminfo calls available", int(size * RAM_SHARE))
    for top, used, idle in (
        ("sys/fs/cgroup/memory.max", "memory.current", "inactive_file "),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "),
    ):
        folder = (root / top).parent
        most, now = _number(root / top), _number(folder / used)
        if most is not None and most < NO_LIMIT:
            # Files that were read once (mostly model weights) count as used until the kernel reclaims their pages.
            left = most - (now or 0) + int(_line(folder / "memory.stat", idle) or 0)
            yield Limit(f"{RAM_SHARE:.0%} of the {left / GIB:.2f} GiB that /{top} leaves", int(left * RAM_SHARE))


def lock_limits() -> Iterator[Limit]:
    """Yield the limit on memory that this process may lock, if there is one."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft != resource.RLIM_INFINITY:
        yield Limit(
            f"{MEMLOCK_SHARE:.0%} of the {soft / GIB:.2f} GiB that may be locked (ulimit -l)", int(soft * MEMLOCK_SHARE)
        )


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _line(path: Path, name: str) -> str | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((line.removeprefix(name).strip() for line in lines if line.startswith(name)), None)
