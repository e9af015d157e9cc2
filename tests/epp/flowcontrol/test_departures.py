"""The expected wait of a request, by the rate at which others leave."""

from __future__ import annotations

import pytest

from epp.errors import Evicted, QueueFull, WaitedTooLong
from epp.flowcontrol.departures import WINDOW_S, Departures
from epp.flowcontrol.eviction import InFlight
from epp.flowcontrol.settings import BandSettings, FlowSettings
from tests.epp.flowcontrol.doubles import Room, Stage, arrival


def stage(places: int) -> Stage:
    """Return a full stage with a limit of requests in the queue of each priority."""
    band = BandSettings(max_requests=places)
    return Stage(FlowSettings(detector=Room(), default=band, ttl_s=30.0))


def refused(there: Stage, **more: int) -> QueueFull:
    with pytest.raises(QueueFull) as refusal:
        there.ask("refused", arrival(**more))
    return refusal.value


def test_the_wait_is_those_ahead_by_the_rate_at_which_they_leave() -> None:
    there = stage(places=8)
    there.fill(*"abcdefgh")
    assert refused(there).retry_after_s == 1, "nothing has left, and nothing is known"
    there.now = 4.0
    there.free(2)
    there.fill("i", "j")
    assert refused(there).wait_s == 16.0, "8 ahead, 2 in 4 s"
    assert refused(there).retry_after_s == 16


def test_a_queue_that_does_not_move_is_a_long_wait() -> None:
    there = stage(places=3)
    there.fill("a", "b", "c")
    there.now = 29.0
    assert refused(there).retry_after_s == 60


def test_those_of_lower_priority_are_not_ahead() -> None:
    there = stage(places=2)
    there.fill("a", "b", priority=1)
    there.fill("c", "d", priority=-1)
    there.now = 2.0
    there.free(1)
    there.fill("e", priority=1)
    assert refused(there, priority=1).wait_s == 4.0
    assert refused(there, priority=-1).wait_s == 8.0


def test_expired_and_evicted_requests_get_the_expected_wait_too() -> None:
    there = stage(places=9)
    there.fill("a", "b")
    there.now = 10.0
    there.free(1)
    there.fill("c")
    there.now = 30.0
    there.controller.expire()
    error = there.ended["b"]
    assert isinstance(error, WaitedTooLong)
    assert error.wait_s == 2 * 20.0 / 1
    told: list[object] = []
    in_flight = InFlight()
    in_flight.add(1, -1, lambda error: (told.append(error), in_flight.discard(1))[0])
    assert in_flight.end(below=0, most=1, wait_s=lambda priority: 7.5) == 1
    (evicted,) = told
    assert isinstance(evicted, Evicted)
    assert evicted.retry_after_s == 8


def test_departures_of_long_ago_do_not_count() -> None:
    departures = Departures()
    departures.began(100.0)
    for n in range(50):
        departures.left(100.0 + n / 10)
    assert departures.wait_s(10, 105.0) == 1.0
    departures.left(105.0 + WINDOW_S)
    assert departures.wait_s(51, 105.0 + WINDOW_S) == 15.0, "the window before this one counts"
    assert departures.wait_s(10, 105.0 + 2 * WINDOW_S) == 10 * WINDOW_S / 1
    assert departures.wait_s(1, 105.0 + 3 * WINDOW_S) == WINDOW_S, "nothing left in the last"


def test_a_queue_that_was_empty_begins_anew() -> None:
    there = stage(places=1)
    there.fill("a")
    there.now = 50.0
    there.free(1)
    there.fill("b")
    assert refused(there).retry_after_s == 1
