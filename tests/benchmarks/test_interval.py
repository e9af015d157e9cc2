from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.interval import median_interval


def test_the_interval_of_twenty_values_is_the_sixth_to_the_fifteenth() -> None:
    # The binomial distribution's 5 of 20: tables of the sign test have the same.
    assert median_interval([float(n) for n in range(1, 21)]) == (6, 10.5, 15)


def test_too_few_values_have_no_interval() -> None:
    with pytest.raises(ValueError, match="5 values are too few for an interval of 95%"):
        median_interval([1, 2, 3, 4, 5])


@given(st.lists(st.floats(-1e6, 1e6), min_size=6))
def test_the_median_lies_within_its_interval_whatever_the_order(values: list[float]) -> None:
    low, median, high = median_interval(values)
    assert low <= median <= high
    assert median_interval(values[::-1]) == (low, median, high)


def test_it_holds_the_true_median_as_often_as_it_says() -> None:
    random = Random(7)
    intervals = [median_interval([random.expovariate(1) for _ in range(24)]) for _ in range(2000)]
    held = sum(low <= 0.6931 <= high for low, _, high in intervals)
    assert held / 2000 >= 0.94
