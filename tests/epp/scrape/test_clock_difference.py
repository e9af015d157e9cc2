"""The difference of two clocks, with responses that are under way for a while."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from epp.scrape.reading.clock_difference import ClockDifference

MOMENTS = st.floats(0, 50, allow_nan=False)


def test_nothing_is_known_before_the_first_page() -> None:
    assert ClockDifference().seconds is None


@given(st.floats(1, 1e6), st.lists(st.tuples(MOMENTS, st.floats(0, 5)), min_size=1))
def test_the_difference_is_too_small_by_the_way_back_of_the_fastest_answer_and_never_too_large(
    ahead_s: float, answers: list[tuple[float, float]]
) -> None:
    clock = ClockDifference(window_s=100)
    for written_at, way_back_s in answers:
        clock.read(written_at + ahead_s, written_at + way_back_s)
    assert clock.seconds is not None
    distinct = {written_at + ahead_s: way_back_s for written_at, way_back_s in reversed(answers)}
    assert -min(distinct.values()) - 1e-6 <= clock.seconds - ahead_s <= 1e-6


@given(st.floats(1, 20), st.lists(st.tuples(st.floats(0, 10), st.floats(-1e3, 1e3)), min_size=1))
def test_only_readings_of_the_window_count(window_s: float, readings: list[tuple[float, float]]) -> None:
    clock, now, kept = ClockDifference(window_s), 0.0, list[tuple[float, float]]()
    last = 0.0
    for step_s, engine_s in readings:
        now += step_s
        clock.read(engine_s, now)
        if engine_s != last:
            kept.append((now, engine_s - now))
            kept = [reading for reading in kept if reading[0] >= now - window_s]
        last = engine_s
        assert clock.seconds == (max(difference for _, difference in kept) if kept else None)


def test_a_clock_that_stands_still_was_not_read() -> None:
    clock = ClockDifference()
    clock.read(1000.0, 10.0)
    for received_at in range(11, 1000):
        clock.read(1000.0, received_at)
    assert clock.seconds == 990.0


def test_a_clock_that_was_set_back_is_followed_after_a_minute() -> None:
    clock = ClockDifference()
    clock.read(1000.0, 0.0)
    for received_at in range(1, 62):
        clock.read(500.0 + received_at, received_at)
    assert clock.seconds == 500.0
