"""Long work on the event loop, done in short slices."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

SLICE_S = 0.0002
"""How long one slice takes, for which requests may have to wait."""


async def sliced(steps: Iterator[None], clock: Callable[[], float] = time.perf_counter) -> None:
    """Take every step, in slices of ``SLICE_S``, with a pause of the same length after each for other work.

    The clock is read after each step: most take 1 to 10 µs, and some (a large object) are slices by themselves.
    """
    until = clock() + SLICE_S
    for _ in steps:
        if clock() >= until:
            await asyncio.sleep(SLICE_S)
            until = clock() + SLICE_S
