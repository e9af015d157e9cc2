"""The behavior of a real Envoy with the other configurations, and without a picker."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from epp.pb.processing_mode_pb2 import ProcessingMode
from epp.standalone.settings import ResponseMode
from tests.e2e.site.background import Background
from tests.epp.standalone.fixed_picker import kinds
from tests.epp.standalone.stage import stage

pytestmark = pytest.mark.e2e


def test_full_mode_shows_the_picker_every_piece_of_an_answer_as_it_comes(loop: Background, tmp_path: Path) -> None:
    with stage(loop, tmp_path, response_mode=ResponseMode.FULL) as full:
        answer = full.ask(stream=True)
        assert answer.body.endswith(b"[DONE]\n\n")
        loop.until(lambda: full.picker.closed == 1)
        (stream,) = full.picker.streams
        assert kinds(stream)[:3] == ["request_headers", "request_body", "response_headers"]
        assert stream[0].protocol_config.response_body_mode == ProcessingMode.STREAMED
        assert b"".join(message.response_body.body for message in stream) == answer.body
        assert not full.picker.outcomes, "no access log beside it"


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_the_sample_of_a_lean_proxy_is_shown_in_full(loop: Background, tmp_path: Path, rate: float) -> None:
    with stage(loop, tmp_path, sample_rate=rate) as sampled:
        sampled.picker.knows_every_end = True
        for _ in range(60):
            assert sampled.ask().status == 200
        loop.until(lambda: sampled.picker.closed == 60)
        seen = ["response_body" in kinds(stream) for stream in sampled.picker.streams]
        announced = [s[0].protocol_config.response_body_mode == ProcessingMode.STREAMED for s in sampled.picker.streams]
        assert seen == announced
        # 60 draws: outside 10 to 50 once in 10^8 runs.
        assert sum(seen) == 60 if rate == 1.0 else 10 < sum(seen) < 50
        loop.until(lambda: len(sampled.picker.outcomes) == 60)
        counts = sampled.picker.log.statistics()
        assert (counts.sampled, counts.unmatched) == (sum(seen), 60 - sum(seen)), "the log says which they are"


def test_fail_open_serves_by_turns_without_the_picker_and_asks_it_again_when_it_is_back(
    loop: Background, tmp_path: Path
) -> None:
    with stage(loop, tmp_path) as opened:
        port = opened.picker.port
        loop.run(opened.picker.stop())
        assert {opened.ask().served_by for _ in range(12)} == {engine.address for engine in opened.engines}
        assert opened.ask(prompt="x" * (1 << 20)).status == 200
        loop.run(opened.engines[0].stop())
        assert {opened.ask().served_by for _ in range(6)} == {opened.engines[1].address}
        loop.run(opened.picker.start(port))
        deadline = time.monotonic() + 10
        while not opened.picker.picks:
            assert opened.ask().status == 200
            assert time.monotonic() < deadline


def test_fail_closed_answers_503_without_the_picker(loop: Background, tmp_path: Path) -> None:
    with stage(loop, tmp_path, fail_open=False) as closed:
        assert closed.ask().status == 200
        loop.run(closed.picker.stop())
        assert {closed.ask().status for _ in range(6)} == {503}
        assert closed.ask(method="GET", path="/v1/models").status == 503


@pytest.mark.parametrize(("fail_open", "status"), [(True, 200), (False, 503)])
def test_a_picker_that_hangs_costs_no_more_than_its_time(
    loop: Background, tmp_path: Path, fail_open: bool, status: int
) -> None:
    with stage(loop, tmp_path, fail_open=fail_open, picker_timeout_s=0.2) as hung:
        hung.picker.silent = True
        assert hung.ask().status == status


def test_a_picker_that_dies_in_the_middle_of_a_request_costs_nothing(loop: Background, tmp_path: Path) -> None:
    with stage(loop, tmp_path) as opened:
        held = opened.engines[0]
        opened.picker.destination = held.address
        loop.call(held.gate.clear)
        connection = opened.connect()
        connection.request("POST", "/v1/completions", '{"model": "m", "prompt": "x", "stream": true}')
        loop.until(held.started.is_set)
        loop.run(opened.picker.stop())
        loop.call(held.gate.set)
        assert connection.getresponse().read().endswith(b"[DONE]\n\n")
        connection.close()


def test_a_limit_on_requests_answers_413(loop: Background, tmp_path: Path) -> None:
    with stage(loop, tmp_path, max_request_bytes=1 << 16) as limited:
        assert limited.ask(prompt="x" * 30_000).status == 200
        assert limited.ask(prompt="x" * 200_000).status == 413
