"""The interval at which an endpoint's metrics are read."""

from __future__ import annotations

import pytest

from epp.scrape.pace import Pace

PACE = Pace(busy_s=0.05, idle_s=1.0, staleness_s=2.0, most_per_s=400)


def test_an_endpoint_with_requests_in_flight_is_read_at_the_busy_interval_at_once() -> None:
    assert PACE.after_success(1.0, in_flight=True, busy=1, endpoints=10) == 0.05


def test_an_endpoint_whose_requests_have_ended_slows_down_by_halves() -> None:
    intervals, interval_s = [], 0.05
    for _ in range(6):
        interval_s = PACE.after_success(interval_s, in_flight=False, busy=0, endpoints=10)
        intervals.append(interval_s)
    assert intervals == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_a_failing_endpoint_slows_down_whether_or_not_it_has_requests() -> None:
    assert PACE.after_failure(0.05, endpoints=10) == 0.1
    assert PACE.after_failure(1.0, endpoints=10) == 1.0


@pytest.mark.parametrize(("busy", "interval_s"), [(1, 0.05), (20, 0.05), (100, 0.25), (1000, 2.5)])
def test_many_busy_endpoints_share_the_pace(busy: int, interval_s: float) -> None:
    assert PACE.at_pick(busy) == interval_s


@pytest.mark.parametrize(("endpoints", "interval_s"), [(1, 1.0), (400, 1.0), (1000, 2.5)])
def test_so_do_many_idle_ones(endpoints: int, interval_s: float) -> None:
    assert PACE.after_success(9.0, in_flight=False, busy=0, endpoints=endpoints) == interval_s


def test_staleness_counts_from_the_interval_in_force() -> None:
    assert PACE.stale_after(0.05) == 2.05
    assert PACE.stale_after(1.0) == 3.0


def test_an_idle_interval_below_the_busy_one_is_not_used() -> None:
    slow = Pace(busy_s=5.0, idle_s=1.0)
    assert slow.at_pick(1) == 5.0
    assert slow.after_success(5.0, in_flight=False, busy=0, endpoints=1) == 5.0


@pytest.mark.parametrize(
    ("sharing", "moments"),
    [(1, {10.0}), (4, {10.0}), (8, {9.975, 10.0, 10.025}), (100, {9.98, 9.99, 10.0, 10.01, 10.02})],
)
def test_endpoints_meet_in_small_groups(sharing: int, moments: set[float]) -> None:
    interval_s = PACE.at_pick(sharing)
    spread = [9.98 + 0.001 * step for step in range(41)]
    assert {round(PACE.due(at, interval_s, sharing), 6) for at in spread} == moments
