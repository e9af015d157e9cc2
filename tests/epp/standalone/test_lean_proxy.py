"""The behavior of a real Envoy with the configuration of the default mode."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import IncompleteRead
from pathlib import Path

import pytest

from epp.decision import Cause
from epp.standalone.routes import RETRIES
from tests.e2e.site.background import Background
from tests.epp.standalone.fixed_picker import kinds
from tests.epp.standalone.stage import Stage, stage

pytestmark = pytest.mark.e2e
DESTINATION = "x-gateway-destination-endpoint"


@pytest.fixture(scope="module")
def shared(loop: Background, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(loop, tmp_path_factory.mktemp("lean")) as started:
        yield started


@pytest.fixture
def lean(shared: Stage) -> Iterator[Stage]:
    """Reset the shared stage and return it."""
    yield shared
    for engine in shared.engines:
        shared.loop.call(engine.gate.set)
    shared.loop.until(shared.picker.saw_all_ends, "every pick's end is reported")
    shared.loop.call(shared.picker.forget)
    for engine in shared.engines:
        engine.requests.clear()
        engine.break_off = False
        shared.loop.call(engine.started.clear)


def test_the_destination_in_the_bodys_answer_is_followed(lean: Stage) -> None:
    for engine in lean.engines * 3:
        lean.picker.destination = engine.address
        assert lean.ask().served_by == engine.address


def test_the_destination_of_a_request_without_a_body_is_followed(lean: Stage) -> None:
    for engine in lean.engines * 2:
        lean.picker.destination = engine.address
        assert lean.ask(method="GET", path="/v1/models").status == 200
        assert len(engine.requests) > 0
    assert {len(engine.requests) for engine in lean.engines} == {2}


def test_without_a_destination_the_endpoints_take_turns(lean: Stage) -> None:
    assert {lean.ask().served_by for _ in range(12)} == {engine.address for engine in lean.engines}


def test_the_picker_sees_the_request_once_and_nothing_of_the_response(lean: Stage) -> None:
    lean.ask(stream=True)
    stream = lean.picker.streams[0]
    assert kinds(stream) == ["request_headers", "request_body"]
    assert stream[1].request_body.end_of_stream
    assert stream[0].HasField("protocol_config")


def test_the_stream_ends_with_the_request_and_not_before(lean: Stage) -> None:
    held = lean.engines[0]
    lean.picker.destination = held.address
    lean.loop.call(held.gate.clear)
    with closing(lean.connect()) as connection:
        connection.request("POST", "/v1/completions", '{"model": "m", "prompt": "x", "stream": true}')
        response = connection.getresponse()
        assert response.read1().startswith(b"data: "), "the first piece is not held back"
        assert lean.picker.closed == 0
        lean.loop.call(held.gate.set)
        assert response.read().endswith(b"[DONE]\n\n")
        lean.loop.until(lambda: lean.picker.closed == 1)
    lean.loop.until(lean.picker.saw_all_ends)


def test_the_picker_may_hang_up_after_its_decision(lean: Stage) -> None:
    lean.picker.hangs_up_after = "request_body"
    lean.picker.destination = lean.engines[1].address
    assert lean.ask().served_by == lean.engines[1].address
    lean.loop.until(lean.picker.saw_all_ends)


def test_the_end_is_reported_with_its_pick_status_size_and_endpoint(lean: Stage) -> None:
    lean.picker.destination = lean.engines[1].address
    answer = lean.ask()
    lean.loop.until(lean.picker.saw_all_ends)
    ended = lean.picker.last
    assert (ended.cause, ended.status) == (Cause.COMPLETED, 200)
    assert ended.response_bytes == len(answer.body)
    assert ended.served_by == lean.engines[1].address
    assert ended.duration_s is not None
    assert 0 < ended.duration_s < 15
    assert not ended.streaming


def test_a_streamed_answer_is_reported_as_such(lean: Stage) -> None:
    lean.ask(stream=True)
    lean.loop.until(lean.picker.saw_all_ends)
    assert lean.picker.last.streaming


def test_a_client_that_leaves_is_reported_and_its_engine_told(lean: Stage) -> None:
    held = lean.engines[0]
    gone = held.gone
    lean.picker.destination = held.address
    lean.loop.call(held.gate.clear)
    connection = lean.connect()
    connection.request("POST", "/v1/completions", '{"model": "m", "prompt": "x"}')
    lean.loop.until(held.started.is_set)
    connection.close()
    lean.loop.until(lean.picker.saw_all_ends)
    assert lean.picker.last.cause is Cause.DISCONNECTED
    lean.loop.until(lambda: held.gone == gone + 1)


def test_an_engine_that_breaks_off_is_reported_and_not_asked_again(lean: Stage) -> None:
    breaking = lean.engines[0]
    lean.picker.destination = ",".join(engine.address for engine in lean.engines)
    lean.loop.call(breaking.gate.clear)
    with closing(lean.connect()) as connection:
        connection.request("POST", "/v1/completions", '{"model": "m", "prompt": "x", "stream": true}')
        response = connection.getresponse()
        assert response.read1().startswith(b"data: ")
        breaking.break_off = True
        lean.loop.call(breaking.gate.set)
        with pytest.raises(IncompleteRead):
            response.read()
    lean.loop.until(lean.picker.saw_all_ends)
    assert lean.picker.last.errors, "the proxy says why"
    assert [len(engine.requests) for engine in lean.engines] == [1, 0]


def test_fallbacks_are_walked_when_an_endpoint_cannot_be_reached(lean: Stage) -> None:
    lean.loop.run(lean.engines[0].stop())
    port = int(lean.engines[0].address.rpartition(":")[2])
    lean.picker.destination = f"{lean.engines[0].address},{lean.engines[1].address}"
    answers = [lean.ask() for _ in range(4)]
    lean.loop.run(lean.engines[0].start(port))
    assert {answer.served_by for answer in answers} == {lean.engines[1].address}
    lean.loop.until(lean.picker.saw_all_ends)
    assert {ended.served_by for ended in lean.picker.outcomes.values()} == {lean.engines[1].address}
    lean.picker.destination = ""
    wait_until(lambda: {lean.ask().served_by for _ in range(4)} == {engine.address for engine in lean.engines})


def test_retries_stay_at_an_address_that_the_destination_repeats(loop: Background, tmp_path: Path) -> None:
    with stage(loop, tmp_path) as its_own:  # the stopped engine would be out of the others' turns for a while
        stopped, running = its_own.engines
        loop.run(stopped.stop())
        its_own.picker.destination = ",".join([stopped.address] * (RETRIES + 1))
        assert [its_own.ask().status for _ in range(2)] == [503, 503]
        assert not running.requests


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until an endpoint that could not be reached is in the round robin again."""
    deadline = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < deadline


def test_a_destination_that_is_no_endpoint_falls_back_to_turns(lean: Stage) -> None:
    lean.picker.destination = "127.0.0.1:9"
    assert {lean.ask().served_by for _ in range(12)} == {engine.address for engine in lean.engines}


@pytest.mark.parametrize("name", [DESTINATION, DESTINATION.title()])
def test_a_client_cannot_choose_its_endpoint(lean: Stage, name: str) -> None:
    wanted = lean.engines[0].address
    assert {lean.ask({name: wanted}).served_by for _ in range(12)} == {engine.address for engine in lean.engines}
    for engine in lean.engines:
        assert all(DESTINATION not in request.headers for request in engine.requests)
    for stream in lean.picker.streams:
        assert DESTINATION not in {header.key for header in stream[0].request_headers.headers.headers}


@pytest.mark.parametrize(
    ("name", "value"),
    [("x-envoy-upstream-rq-timeout-ms", "1"), ("x-envoy-retry-on", "5xx"), ("x-envoy-upstream-alt-stat-name", "y")],
)
def test_a_client_cannot_steer_the_proxy(lean: Stage, name: str, value: str) -> None:
    lean.ask({name: value})
    assert name not in {header.key for header in lean.picker.streams[0][0].request_headers.headers.headers}


def test_the_clients_request_id_is_kept_and_missing_ones_are_made(lean: Stage) -> None:
    lean.ask({"x-request-id": "mine"})
    lean.ask()
    first, second = (stream[0].request_headers.headers.headers for stream in lean.picker.streams)
    assert {h.key: h.raw_value for h in first}["x-request-id"] == b"mine"
    assert len({h.key: h.raw_value for h in second}["x-request-id"]) == 36


def test_headers_with_underscores_pass(lean: Stage) -> None:
    lean.picker.destination = lean.engines[0].address
    lean.ask({"session_id": "s"})
    assert lean.engines[0].requests[0].headers["session_id"] == "s"


def test_a_body_of_30_mib_passes_and_a_larger_than_the_limit_is_refused(lean: Stage) -> None:
    assert lean.ask(prompt="x" * (30 << 20)).status == 200
    streams = len(lean.picker.streams)
    assert lean.ask(prompt="x" * (33 << 20)).status == 413
    assert all(len(request.headers) for engine in lean.engines for request in engine.requests)
    assert len(lean.picker.streams) <= streams + 1


def test_the_endpoints_file_is_followed(lean: Stage) -> None:
    lean.list_endpoints(lean.engines[1:])
    lean.loop.until(lambda: True)
    deadline = time.monotonic() + 10
    while {lean.ask().served_by for _ in range(4)} != {lean.engines[1].address}:
        assert time.monotonic() < deadline
    lean.picker.destination = lean.engines[0].address
    assert lean.ask().served_by == lean.engines[1].address, "no longer an endpoint"
    lean.list_endpoints([])
    while lean.ask().status != 503:
        assert time.monotonic() < deadline
    lean.list_endpoints(lean.engines)
    while (answer := lean.ask()).status != 200 or answer.served_by != lean.engines[0].address:
        assert time.monotonic() < deadline
