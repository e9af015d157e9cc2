"""Long work leaves the event loop free at short intervals."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise

import pytest

from epp.runtime.slices import SLICE_S, sliced


@pytest.mark.parametrize(("each_s", "most"), [(2 * SLICE_S, 1), (SLICE_S / 5, 6)])
def test_others_have_their_turn_after_each_slice_whatever_a_step_takes(each_s: float, most: int) -> None:
    async def body() -> None:
        turns: list[int] = []
        taken = 0

        def steps() -> Iterator[None]:
            nonlocal taken
            for _ in range(100):
                taken += 1
                yield

        async def other() -> None:
            while True:
                turns.append(taken)
                await asyncio.sleep(0)

        beside = asyncio.create_task(other())
        await sliced(steps(), lambda: taken * each_s)
        beside.cancel()
        assert taken == 100
        between = {after - before for before, after in pairwise(turns)}
        assert max(between) <= most, "no step is begun after the end of a slice"

    asyncio.run(body())
