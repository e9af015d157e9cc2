from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scorers.load.relative import MANY, least_is_best


@given(st.lists(st.integers(0, 50), max_size=3 * MANY))
def test_few_and_many_counts_are_scored_by_one_formula(counts: list[int]) -> None:
    scores = least_is_best(counts)
    if len(set(counts)) < 2:
        assert scores == [1.0] * len(counts)
    else:
        most, least = max(counts), min(counts)
        assert scores == [(most - count) / (most - least) for count in counts]
