"""Long work on the event loop, done in short slices."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

SLICE_S = 0.0002
"""How long one slice takes, for which requests may have to wait."""
LOOK_EVERY = 8
"""Number of steps between two looks at the clock; a step takes 1 to 10 µs."""


async def sliced(steps: Iterator[None], clock: Callable[[], float] = time.perf_counter) -> None:
    """Take every step, in slices of ``SLICE_S``, with a pause of the same length after each for other work."""
    until = clock() + SLICE_S
    for n, _ in enumerate(steps, 1):
        if not n % LOOK_EVERY and clock() >= until:
            await asyncio.sleep(SLICE_S)
            until = clock() + SLICE_S
