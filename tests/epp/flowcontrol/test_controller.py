"""Requests that wait, go on, or are refused."""

from __future__ import annotations

import pytest

from epp.errors import NoEndpoints, QueueFull, ShuttingDown, WaitedTooLong
from epp.flowcontrol.fairness import RoundRobin
from epp.flowcontrol.limits import HoldbackParameters, PriorityHoldback
from epp.flowcontrol.ordering import EarliestDeadline, SloDeadline
from epp.flowcontrol.queue import QueueOutcome
from epp.flowcontrol.settings import BandSettings, FlowSettings
from tests.epp.flowcontrol.doubles import Room, Stage, arrival


def stage(**more: object) -> Stage:
    """Return a stage whose endpoints are full."""
    return Stage(FlowSettings(detector=Room(), **more))  # type: ignore[arg-type]


def test_a_request_goes_on_at_once_while_there_is_room() -> None:
    there = Stage(places=2)
    assert not there.ask("a", arrival())
    assert not there.ask("b", arrival())
    assert there.ask("c", arrival())
    assert there.seen.outcomes == [QueueOutcome.DISPATCHED] * 2
    assert (there.controller.size, there.controller.size_bytes) == (1, 10)


def test_those_who_wait_go_on_in_the_order_in_which_they_came() -> None:
    there = stage()
    there.fill("a", "b", "c")
    assert there.free(2) == ["a", "b"]
    assert there.free(2) == ["c"]
    assert there.seen.held_bytes == 0


def test_a_newcomer_does_not_overtake_those_who_wait() -> None:
    there = stage()
    there.fill("a")
    there.detector.places = 9
    assert there.ask("b", arrival())
    assert there.free(9) == ["a", "b"]


def test_the_higher_priority_goes_first_and_does_not_wait_behind_the_lower() -> None:
    there = stage()
    there.fill("low", priority=-5)
    there.fill("middle", "middle2")
    there.fill("high", priority=100)
    assert there.free(3) == ["high", "middle", "middle2"]
    there.detector.places += 1
    assert not there.ask("higher", arrival(priority=1))
    assert there.free(1) == ["low"]


def test_a_batch_is_bounded_and_says_that_there_is_more() -> None:
    there = stage()
    there.fill("a", "b", "c")
    there.detector.places = 9
    assert there.controller.dispatch(most=2)
    assert there.order == ["a", "b"]
    assert not there.controller.dispatch(most=2)


def test_a_cancelled_request_is_gone_at_once_and_holds_nothing() -> None:
    there = stage()
    there.fill("a", "b")
    there.now = 3.0
    wait = there.waits["a"]
    wait.cancel()
    wait.cancel()
    assert not hasattr(wait, "arrival")
    assert (there.controller.size, there.controller.size_bytes, there.seen.held_bytes) == (1, 10, 10)
    assert there.seen.outcomes == [QueueOutcome.EVICTED_CANCELLED]
    assert there.seen.waits == [3.0]
    assert there.free(9) == ["b"]
    wait.cancel()


def test_a_request_waits_no_longer_than_it_may() -> None:
    there = stage(ttl_s=60.0)
    there.fill("a")
    there.now = 1.0
    there.fill("b")
    assert there.controller.next_expiry() == 60.0
    there.now = 59.9
    there.controller.expire()
    assert there.ended == {}
    there.now = 60.0
    there.controller.expire()
    error = there.ended.pop("a")
    assert isinstance(error, WaitedTooLong)
    assert (error.http_status, error.dropped_reason) == (429, "rejected-ttl-expired")
    assert "60 s" in str(error)
    assert (there.ended, there.controller.next_expiry()) == ({}, 61.0)
    assert there.seen.outcomes == [QueueOutcome.EVICTED_TTL]


def test_without_a_limit_a_request_waits_as_long_as_its_client() -> None:
    there = stage(ttl_s=None)
    there.fill("a")
    there.now = 1e9
    there.controller.expire()
    assert (there.ended, there.controller.next_expiry()) == ({}, None)


@pytest.mark.parametrize(
    ("ttl_s", "no_endpoint_ttl_s", "asked_s"),
    [(60.0, 60.0, 61.0), (5.0, 60.0, 61.0), (60.0, 5.0, 61.0), (3599.0, 60.0, 3600.0), (3600.0, 60.0, 3600.0),
     (7200.0, 60.0, 3600.0), (60.0, 7200.0, 3600.0), (None, 60.0, 3600.0)],
)  # fmt: skip
def test_a_proxy_is_asked_for_more_than_a_wait_may_take_and_never_for_more_than_it_grants(
    ttl_s: float | None, no_endpoint_ttl_s: float, asked_s: float
) -> None:
    there = stage(ttl_s=ttl_s, no_endpoint_ttl_s=no_endpoint_ttl_s)
    there.now = 100.0
    there.fill("a")
    assert there.waits["a"].patience_s() == asked_s
    assert there.waits["a"].patience_s() == asked_s
    expiry = there.controller.next_expiry()
    assert expiry is not None
    assert expiry < there.now + asked_s
    there.now = expiry
    there.controller.expire()
    assert isinstance(there.ended["a"], WaitedTooLong)
    assert there.controller.next_expiry() is None


def test_a_request_that_waits_when_the_limit_is_raised_expires_before_its_proxy_gives_up() -> None:
    there = stage(ttl_s=60.0)
    there.fill("buffered", "duplex", "left")
    there.waits["buffered"].patience_s()
    there.waits["left"].patience_s()
    there.waits["left"].cancel()
    there.controller.use(there.settings(ttl_s=600.0))
    there.fill("later")
    there.waits["later"].patience_s()
    there.now = 59.9
    there.controller.expire()
    assert there.ended == {}
    there.now = 60.0
    there.controller.expire()
    assert isinstance(there.ended["buffered"], WaitedTooLong)
    assert "60 s" in str(there.ended["buffered"])
    there.now = 599.0
    there.controller.expire()
    assert set(there.waits) == {"duplex", "left", "later"}
    there.now = 600.0
    there.controller.expire()
    assert set(there.ended) == {"buffered", "duplex", "later"}


def test_an_empty_pool_has_its_own_limit_and_its_own_refusal() -> None:
    there = stage(ttl_s=60.0, no_endpoint_ttl_s=5.0)
    there.endpoints = 0
    there.fill("a")
    there.now = 5.0
    there.controller.expire()
    error = there.ended["a"]
    assert isinstance(error, NoEndpoints)
    assert (error.http_status, error.dropped_reason) == (503, "rejected-no-endpoints")
    assert there.seen.outcomes == [QueueOutcome.EVICTED_NO_ENDPOINTS]


def test_requests_wait_for_the_first_endpoint() -> None:
    there = Stage(places=9, endpoints=0)
    there.fill("a")
    there.endpoints = 1
    assert there.free(9) == ["a"]


def test_with_a_limit_of_zero_no_request_waits_for_an_endpoint() -> None:
    there = stage(no_endpoint_ttl_s=0.0)
    there.endpoints = 0
    with pytest.raises(NoEndpoints, match="noEndpointRequestTTL"):
        there.ask("a", arrival())
    assert there.seen.outcomes == [QueueOutcome.REJECTED_NO_ENDPOINTS]


@pytest.mark.parametrize(
    ("settings", "second", "words"),
    [
        ({"max_bytes": 19}, {}, r"10 bytes wait already, and flowControl\.maxBytes is 19"),
        ({"max_requests": 1}, {}, r"1 requests wait already, and flowControl\.maxRequests is 1"),
        ({"max_requests": 1}, {"priority": 7}, r"flowControl\.maxRequests is 1"),
        ({"default": BandSettings(max_bytes=19)}, {}, r"maxBytes of priority 0 is 19"),
        ({"default": BandSettings(max_requests=1)}, {}, r"maxRequests of priority 0 is 1"),
        ({"max_bytes": 19, "max_requests": 1, "default": BandSettings(max_requests=1)}, {}, "flowControl.maxBytes"),
        ({"default": BandSettings(max_bytes=19, max_requests=1)}, {}, "maxBytes of"),
    ],
)
def test_a_limit_is_named_and_never_exceeded(settings: dict[str, object], second: dict[str, int], words: str) -> None:
    there = stage(**settings)
    there.fill("a")
    with pytest.raises(QueueFull, match=words) as refusal:
        there.ask("b", arrival(**second))  # type: ignore[arg-type]
    assert (refusal.value.http_status, refusal.value.dropped_reason) == (429, "rejected-saturated")
    assert there.seen.outcomes == [QueueOutcome.REJECTED_CAPACITY]
    assert there.controller.size == 1


def test_another_bands_limit_is_its_own() -> None:
    there = stage(default=BandSettings(max_requests=1), default_negative=BandSettings(max_requests=2))
    there.fill("a")
    there.fill("b", priority=1)
    there.fill("c", "d", priority=-1)
    with pytest.raises(QueueFull):
        there.ask("e", arrival(priority=-1))


def test_a_request_that_need_not_wait_is_not_measured_by_the_queues_limits() -> None:
    there = Stage(FlowSettings(detector=Room(), max_bytes=5), places=1)
    assert not there.ask("a", arrival(size_bytes=1000))


def test_flows_take_turns() -> None:
    there = stage(default=BandSettings(fairness=RoundRobin()))
    there.fill("a1", "a2", "a3", flow="a")
    there.fill("b1", flow="b")
    there.fill("c1", "c2", flow="c")
    assert there.free(9) == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_strict_has_no_flows() -> None:
    there = stage()
    there.fill("a1", flow="a")
    there.fill("b1", flow="b")
    there.fill("a2", flow="a")
    assert there.free(9) == ["a1", "b1", "a2"]


def test_the_earliest_deadline_is_that_of_the_first_since_all_may_wait_as_long() -> None:
    there = stage(default=BandSettings(ordering=EarliestDeadline()))
    there.fill("a")
    there.now = 1.0
    there.fill("b")
    assert there.free(9) == ["a", "b"]


def test_the_earliest_first_token_goes_first_and_a_request_without_a_target_last() -> None:
    there = stage(default=BandSettings(ordering=SloDeadline()))
    there.fill("silent")
    there.fill("nonsense", x_llm_d_slo_ttft_ms="soon")
    there.fill("late", x_llm_d_slo_ttft_ms="900", received_s=1.0)
    there.fill("soon", x_slo_ttft_ms="100", received_s=1.5)
    assert there.free(9) == ["soon", "late", "silent", "nonsense"]


def test_lower_bands_are_held_back_while_higher_ones_go_on() -> None:
    holdback = PriorityHoldback(HoldbackParameters(min_ceiling=0.5))
    there = stage(limits=holdback, bands={10: BandSettings(), 0: BandSettings()})
    there.detector.level = 0.7
    assert there.ask("low", arrival())
    assert not there.ask("high", arrival(priority=10))
    there.controller.dispatch()
    assert there.order == ["high"]
    there.detector.level = 0.4
    there.controller.gauge.use(there.detector)
    there.controller.dispatch()
    assert there.order == ["high", "low"]


def test_closing_refuses_all_requests_and_queues_none() -> None:
    there = stage()
    there.fill("a", "b")
    there.controller.close()
    assert {name: type(error) for name, error in there.ended.items()} == {"a": ShuttingDown, "b": ShuttingDown}
    with pytest.raises(ShuttingDown) as refusal:
        there.ask("c", arrival())
    assert (refusal.value.http_status, refusal.value.dropped_reason) == (503, "rejected-shutting-down")
    assert there.seen.outcomes == [QueueOutcome.EVICTED_OTHER] * 2 + [QueueOutcome.REJECTED_OTHER]
    there.detector.places += 1
    assert not there.ask("d", arrival()), "who need not wait goes on"


def test_releasing_sends_everybody_on() -> None:
    there = stage()
    there.fill("a", "b")
    there.controller.release()
    assert there.order == ["a", "b"]
    assert there.controller.size == 0


def test_many_are_released_in_batches() -> None:
    there = stage()
    there.fill("a", "b", "c")
    assert there.controller.release(most=2)
    assert there.order == ["a", "b"]
    assert not there.controller.release(most=2)
    assert there.order == ["a", "b", "c"]


def test_those_who_wait_stay_under_new_settings_in_the_order_that_these_give() -> None:
    there = stage()
    there.fill("a1", "a2", flow="a")
    there.fill("b1", flow="b")
    there.waits["a1"].cancel()
    there.fill("a3", flow="a")
    there.controller.use(there.settings(max_requests=1, default=BandSettings(max_requests=1, fairness=RoundRobin())))
    assert (there.controller.size, there.seen.held_bytes) == (3, 30)
    assert there.free(9) == ["a2", "b1", "a3"]
    assert there.controller.size_bytes == 0


def test_the_failure_of_one_request_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    there = stage()

    def fails(error: object) -> None:
        raise ZeroDivisionError("a fault")

    assert there.controller.admit(arrival(), fails) is not None
    there.fill("b")
    assert there.free(9) == ["b"]
    assert "a fault" in caplog.text
