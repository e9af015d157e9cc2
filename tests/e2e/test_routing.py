"""The endpoints of requests while engines fill up, fail, come and go; no request stays counted afterwards."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from select import select

import openai
import pytest

from epp.pool.pool import Endpoint
from tests.e2e.site.engine import Engine
from tests.e2e.site.router import LOOPBACK, Router

pytestmark = pytest.mark.e2e
DESTINATION = "x-gateway-destination-endpoint"


def test_a_busy_engine_is_spared(routed: Router, engines: list[Engine]) -> None:
    for engine in engines:
        routed.loop.call(engine.gate.clear)
    with ThreadPoolExecutor(8) as clients:
        answers = [clients.submit(routed.complete, f"{n}") for n in range(8)]
        routed.loop.until(lambda: sum(len(engine.bodies) for engine in engines) == 8)
        assert [len(engine.bodies) for engine in engines] == [4, 4], "a burst is spread as it comes"
        for engine in engines:
            routed.loop.call(engine.gate.set)
        assert {answer.result() for answer in answers} == {engine.address for engine in engines}


def test_a_client_cannot_choose_its_endpoint(routed: Router, engines: list[Engine]) -> None:
    wanted = {DESTINATION: engines[0].address}
    for n in range(12):
        routed.complete(f"{n}", extra_headers=wanted)
    assert all(engine.requests for engine in engines)
    said = {(engine.address, request.headers[DESTINATION]) for engine in engines for request in engine.requests}
    assert all(destination.split(",")[0] == address for address, destination in said), "only the picker's own"


def test_a_client_that_leaves_is_uncounted_and_its_engine_told(routed: Router, engines: list[Engine]) -> None:
    for engine in engines:
        routed.loop.call(engine.gate.clear)
    gone = sum(engine.gone for engine in engines)
    with closing(HTTPConnection(LOOPBACK, routed.port, timeout=15)) as connection:
        connection.request("POST", "/v1/completions", '{"model": "m", "prompt": "x"}')
        routed.loop.until(lambda: any(engine.started.is_set() for engine in engines))
        assert len(routed.picker.ledger) == 1
    routed.settle()
    routed.loop.until(lambda: sum(engine.gone for engine in engines) == gone + 1)


def test_an_engine_that_dies_in_the_middle_of_an_answer_ends_it_and_is_uncounted(
    routed: Router, engines: list[Engine]
) -> None:
    for engine in engines:
        routed.loop.call(engine.gate.clear)
    stream = routed.client.completions.create(model="m", prompt="x", stream=True)
    pieces = iter(stream)
    first = next(pieces).choices[0].text
    serving = next(engine for engine in engines if engine.address == first)
    serving.break_off = True
    routed.loop.call(serving.gate.set)
    with pytest.raises(Exception, match=r"(?i)incomplete|closed|peer|connection|payload"):
        list(pieces)
    routed.settle()
    assert sum(len(engine.bodies) for engine in engines) == 1, "a prompt is not computed twice"


def test_a_prompt_goes_where_its_prefix_is_held(routed: Router, engines: list[Engine]) -> None:
    homes = {}
    for group in range(6):
        shared = f"Group {group}: " + "a long system prompt that many requests have in common. " * 40
        homes[group] = {routed.complete(shared + f"Question {n}") for n in range(5)}
    assert all(len(served) == 1 for served in homes.values()), homes
    assert set().union(*homes.values()) == {engine.address for engine in engines}


def test_the_holder_of_a_prefix_is_left_when_it_queues(routed: Router, engines: list[Engine]) -> None:
    shared = "Another long system prompt that many requests have in common. " * 40
    home = next(engine for engine in engines if engine.address == routed.complete(shared))
    assert routed.complete(shared + "warm") == home.address
    home.waiting = 5
    routed.loop.until(lambda: any(each.waiting >= 5 for each in routed.picker.pool.candidates()), "it is scraped")
    assert routed.complete(shared + "busy") != home.address


def test_an_engine_that_is_not_there_costs_no_request(routed: Router, engines: list[Engine]) -> None:
    dead, port = engines[0], int(engines[0].address.rpartition(":")[2])
    routed.loop.run(dead.stop())
    answers = {routed.complete(f"{n}") for n in range(8)}
    routed.loop.run(dead.start(port))
    assert answers == {engines[1].address}


def test_the_pool_is_followed_while_requests_are_under_way(routed: Router, engines: list[Engine]) -> None:
    def replace(kept: list[Engine]) -> None:
        routed.loop.call(routed.picker.pool.replace, [Endpoint(engine.address) for engine in kept])

    def answer() -> str | None:
        try:
            return routed.complete("x")
        except openai.InternalServerError:
            return None

    for engine in engines:
        routed.loop.call(engine.gate.clear)
    stream = iter(routed.client.completions.create(model="m", prompt="x", stream=True))
    first = next(stream).choices[0].text
    removed = next(engine for engine in engines if engine.address == first)
    stays = next(engine for engine in engines if engine is not removed)
    routed.loop.call(stays.gate.set)
    replace([stays])
    assert {answer() for _ in range(4)} == {stays.address}
    routed.loop.call(removed.gate.set)
    assert len(list(stream)) == 2, "what was under way ends as it should"
    replace([])
    assert answer() is None
    replace(engines)
    seen: set[str | None] = set()
    while seen != {engine.address for engine in engines}:
        seen = {*seen, answer()} - {None}


def test_an_empty_pool_answers_503_with_the_reason(routed: Router, engines: list[Engine]) -> None:
    routed.loop.call(routed.picker.pool.replace, [])
    try:
        with pytest.raises(openai.InternalServerError) as refused:
            routed.complete("x")
    finally:
        routed.loop.call(routed.picker.pool.replace, [Endpoint(engine.address) for engine in engines])
    assert refused.value.status_code == 503
    assert "ServiceUnavailable" in refused.value.response.text
    assert refused.value.response.headers["x-llm-d-request-dropped-reason"] == "rejected-no-endpoints"


def test_a_storm_of_clients_that_leave_leaves_nothing(routed: Router, engines: list[Engine]) -> None:
    for engine in engines:
        routed.loop.call(engine.gate.clear)
    with ExitStack() as connections:
        clients = [connections.enter_context(closing(HTTPConnection(LOOPBACK, routed.port))) for _ in range(300)]
        for client in clients:
            client.request("POST", "/v1/completions", '{"model": "m", "prompt": "x"}')

        def arrived() -> int:
            return sum(len(engine.bodies) for engine in engines)

        def seen() -> str:
            answered = [client.sock for client in clients if select([client.sock], [], [], 0)[0]]
            return f"{arrived()} of 300 requests arrived; answers: {[sock.recv(1000) for sock in answered[:3]]}"

        routed.loop.until(lambda: arrived() == 300, seen)
    routed.settle()
    for engine in engines:
        routed.loop.call(engine.gate.set)
    assert routed.complete("x")


def test_every_request_is_ended_by_what_was_seen_of_it(routed: Router, engines: list[Engine]) -> None:
    before = routed.picker.core.access_log.statistics().ended
    for n in range(20):
        list(routed.client.completions.create(model="m", prompt=f"{n}", stream=True))
    routed.settle()
    assert routed.picker.core.access_log.statistics().ended > before, "most of them by the access log"
