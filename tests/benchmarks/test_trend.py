from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.rig.trend import trend

XS = [float(x) for x in range(40)]


@given(st.floats(-100, 100), st.floats(-1000, 1000))
def test_a_straight_line_is_found_exactly(slope: float, start: float) -> None:
    found = trend(XS, [start + slope * x for x in XS])
    assert found.slope == pytest.approx(slope, abs=1e-6)
    assert found.low <= found.slope <= found.high


@given(st.randoms(use_true_random=False))
def test_outliers_do_not_tilt_it(random_: random.Random) -> None:
    ys = [100.0 + 0.5 * x for x in XS]
    for at in random_.sample(range(len(XS)), 5):
        ys[at] += random_.choice((-1e6, 1e6))
    assert trend(XS, ys).slope == pytest.approx(0.5, abs=0.2)


def test_noise_does_not_grow_and_a_leak_in_it_does() -> None:
    random_ = random.Random(1)
    noise = [random_.gauss(100, 3) for _ in XS]
    assert not trend(XS, noise).grows(over=40, by=5)
    assert trend(XS, [y + 0.5 * x for x, y in zip(XS, noise, strict=True)]).grows(over=40, by=5)


def test_what_surely_rises_by_next_to_nothing_is_flat() -> None:
    assert not trend(XS, [100 + 0.01 * x for x in XS]).grows(over=40, by=5)


def test_two_points_are_no_trend() -> None:
    with pytest.raises(ValueError, match="three"):
        trend([0, 1], [0, 1])
