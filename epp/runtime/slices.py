"""Long work on the event loop, a little at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

SLICE_S = 0.0002
"""How long requests may have to wait for it."""
LOOK_EVERY = 8
"""Steps between two looks at the clock: one takes 1 to 10 µs."""


async def sliced(steps: Iterator[None], clock: Callable[[], float] = time.perf_counter) -> None:
    """Take every step; others on the event loop wait no longer than ``SLICE_S``, and have their turn as long."""
    until = clock() + SLICE_S
    for n, _ in enumerate(steps, 1):
        if not n % LOOK_EVERY and clock() >= until:
            await asyncio.sleep(SLICE_S)
            until = clock() + SLICE_S
