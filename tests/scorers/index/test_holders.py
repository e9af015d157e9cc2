"""Sets as integers, against sets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scorers.base import Slot
from scorers.index.holders import held_by_tier, slots_of

pairs = st.sets(st.tuples(st.integers(0, 300), st.integers(0, 2)), max_size=40)


def mask(holders: set[tuple[int, int]], tiers: int) -> int:
    return sum(1 << (slot * tiers + tier) for slot, tier in holders)


@given(holders=pairs)
def test_the_endpoints_are_those_with_any_tier(holders: set[tuple[int, int]]) -> None:
    assert slots_of(mask(holders, 3), 3) == {slot for slot, _ in holders}


@given(
    st.lists(pairs, max_size=4), st.booleans(), st.sets(st.tuples(st.integers(0, 300), st.integers(0, 2)), max_size=9)
)
def test_every_holder_has_the_amount_of_its_group(
    drawn: list[set[tuple[int, int]]], alike: bool, alone: set[tuple[int, int]]
) -> None:
    groups: list[tuple[set[tuple[int, int]], int]] = []
    for amount, holders in enumerate(drawn, start=1):
        every = {(slot, tier) for slot, _ in holders for tier in range(3)} if alike else holders
        groups.append((every - {each for group, _ in groups for each in group}, amount))
    single = [({each}, 10 + each[0]) for each in alone - {each for group, _ in groups for each in group}]
    masks = [[(mask(holders, 3), amount) for holders, amount in part] for part in (groups, single)]
    tables = held_by_tier(masks[0], masks[1], 3)
    groups += single
    expected = [{Slot(s): amount for holders, amount in groups for s, t in holders if t == tier} for tier in range(3)]
    assert list(tables) == expected
