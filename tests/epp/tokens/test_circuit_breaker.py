"""A server that does not respond gets no requests, for longer each time, and is then tried by one request."""

from __future__ import annotations

import pytest

from epp.tokens import circuit_breaker
from epp.tokens.circuit_breaker import FAILURES, LONGEST_S, CircuitBreaker


class Stage:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.circuit_breaker = CircuitBreaker(lambda: self.now_s)

    def fail(self, times: int, server: str = "a") -> None:
        for _ in range(times):
            self.circuit_breaker.failed(server)

    def is_awake(self, server: str = "a") -> bool:
        return self.circuit_breaker.available([server]) == [server]


def test_a_server_rests_after_some_failures_in_a_row_and_an_answer_ends_that() -> None:
    stage = Stage()
    stage.fail(FAILURES - 1)
    stage.circuit_breaker.succeeded("a")
    stage.fail(FAILURES - 1)
    assert stage.is_awake()
    stage.fail(1)
    assert not stage.is_awake()
    assert stage.circuit_breaker.available(["a", "b"]) == ["b"]
    stage.circuit_breaker.succeeded("a")
    assert stage.is_awake()


def test_it_is_tried_by_one_request_and_rests_longer_each_time() -> None:
    stage, rests = Stage(), []
    stage.fail(FAILURES)
    for _ in range(8):
        began_s = stage.now_s
        while not stage.is_awake():
            stage.now_s += 0.5
        rests.append(stage.now_s - began_s)
        stage.circuit_breaker.request_sent("a")
        assert not stage.is_awake(), "the others wait for what comes of that"
        stage.fail(1)
    assert rests == [1, 2, 4, 8, 16, LONGEST_S, LONGEST_S, LONGEST_S]


def test_requests_that_were_under_way_together_fail_once() -> None:
    stage = Stage()
    stage.fail(FAILURES + 20)
    stage.now_s += 1.0
    assert stage.is_awake(), "nobody has tried it since"
    stage.circuit_breaker.request_sent("a")
    stage.fail(5)
    stage.now_s += 2.0
    assert stage.is_awake()


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(circuit_breaker, "MOST", 10)
    stage = Stage()
    for number in range(100):
        stage.fail(FAILURES, str(number))
    assert len(stage.circuit_breaker._failures) <= 10
    assert len(stage.circuit_breaker._until) <= 10
