from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.rig.interval import median_interval, shift_interval


def test_the_interval_of_twenty_values_is_the_sixth_to_the_fifteenth() -> None:
    # The binomial distribution gives 5 of 20, as tables of the sign test do.
    assert median_interval([float(n) for n in range(1, 21)]) == (6, 10.5, 15)


def test_too_few_values_have_no_interval() -> None:
    with pytest.raises(ValueError, match="5 values are too few for an interval of 95%"):
        median_interval([1, 2, 3, 4, 5])


@given(st.lists(st.floats(-1e6, 1e6), min_size=6))
def test_the_median_lies_within_its_interval_whatever_the_order(values: list[float]) -> None:
    low, median, high = median_interval(values)
    assert low <= median <= high
    assert median_interval(values[::-1]) == (low, median, high)


def test_the_interval_contains_the_true_median_at_its_stated_rate() -> None:
    random = Random(7)
    intervals = [median_interval([random.expovariate(1) for _ in range(24)]) for _ in range(2000)]
    held = sum(low <= 0.6931 <= high for low, _, high in intervals)
    assert held / 2000 >= 0.94


def test_the_interval_of_a_shift_is_that_of_the_tables() -> None:
    # For ten values, Wilcoxon's tables have 8 at 5 %: the ninth average from either end.
    values = [float(2**n) for n in range(10)]
    averages = sorted((a + b) / 2 for n, a in enumerate(values) for b in values[n:])
    low, _, high = shift_interval(values)
    assert (low, high) == (averages[8], averages[-9])


def test_five_values_have_no_interval_of_their_shift() -> None:
    with pytest.raises(ValueError, match="5 values are too few for an interval of 95%"):
        shift_interval([1, 2, 3, 4, 5])


@given(st.lists(st.integers(-1000, 1000), min_size=6, max_size=30), st.integers(-1000, 1000))
def test_a_shift_of_all_values_shifts_the_interval(values: list[int], by: int) -> None:
    low, middle, high = shift_interval(values)
    assert low <= middle <= high
    assert shift_interval([value + by for value in values]) == (low + by, middle + by, high + by)


def test_the_interval_contains_a_shift_at_its_stated_rate_and_is_narrower_than_a_medians() -> None:
    random = Random(8)
    narrower = held = 0
    for _ in range(500):
        differences = [random.expovariate(1) - random.expovariate(1) + 0.3 for _ in range(30)]
        low, _, high = shift_interval(differences)
        held += low <= 0.3 <= high
        by_median = median_interval(differences)
        narrower += high - low < by_median.high - by_median.low
    assert held / 500 >= 0.93
    assert narrower / 500 > 0.5
