"""Orders become changes of the picker's index, a little at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

from epp.kvevents.orders import Add, Drop, Grow, Hold, Report, Split
from scorers.precise_index import PreciseIndex

SLICE_S = 0.0002
"""How long requests may have to wait for orders."""
LOOK_EVERY = 8
"""Steps between two looks at the clock: an order takes 1 to 10 µs."""


def perform(order: Report, index: PreciseIndex) -> bool:
    """Do what ``order`` says; False for what is not about the index."""
    if type(order) is Hold:
        index.hold(order.run, order.holder, order.blocks)
    elif type(order) is Grow:
        index.grow(order.run, order.digests)
    elif type(order) is Add:
        index.add(order.run, order.parent, order.block_tokens, order.digests)
    elif type(order) is Drop:
        index.drop(order.run)
    elif type(order) is Split:
        index.split(order.run, order.blocks, order.upper)
    else:
        return False
    return True


async def sliced(steps: Iterator[None], clock: Callable[[], float] = time.perf_counter) -> None:
    """Take every step; others on the event loop wait no longer than ``SLICE_S``, and have their turn as long."""
    until = clock() + SLICE_S
    for n, _ in enumerate(steps, 1):
        if not n % LOOK_EVERY and clock() >= until:
            await asyncio.sleep(SLICE_S)
            until = clock() + SLICE_S
