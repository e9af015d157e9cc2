"""Long work leaves the event loop free at short intervals."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count, pairwise

from epp.runtime.slices import LOOK_EVERY, SLICE_S, sliced


def test_others_have_their_turn_after_each_slice() -> None:
    async def body() -> None:
        looks = count()
        turns: list[int] = []
        taken = 0

        def steps() -> Iterator[None]:
            nonlocal taken
            for _ in range(100 * LOOK_EVERY):
                taken += 1
                yield

        async def other() -> None:
            while True:
                turns.append(taken)
                await asyncio.sleep(0)

        beside = asyncio.create_task(other())
        await sliced(steps(), lambda: next(looks) * 2 * SLICE_S)  # as if each look came two slices later
        beside.cancel()
        assert taken == 100 * LOOK_EVERY
        between = {after - before for before, after in pairwise(turns)}
        assert max(between) == LOOK_EVERY, "no more steps than between two looks at the clock"

    asyncio.run(body())
