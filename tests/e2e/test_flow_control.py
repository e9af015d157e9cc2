"""Requests that wait for room: client, Envoy, picker and engines, all real; standalone and behind a gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import openai
import pytest

from epp.flowcontrol.queue import QueueOutcome
from epp.ports.claim import claim
from epp.server.settings import Transport
from epp.standalone.settings import RequestMode
from tests.e2e.site.background import Background
from tests.e2e.site.engine import Engine
from tests.e2e.site.router import LOOPBACK, Router, behind_gateway, router

pytestmark = pytest.mark.e2e

CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
inferenceObjectives: [{name: urgent, priority: 10}, {name: batch, priority: -10}]
plugins:
  - {type: queue-scorer}
  - {type: concurrency-detector, parameters: {maxConcurrency: 1}}
  - {type: max-score-picker}
schedulingProfiles: [{name: default, plugins: [{pluginRef: queue-scorer}]}]
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  defaultRequestTTL: @ttl
  enableEviction: true
"""
Start = Callable[[str], AbstractContextManager[Router]]


@pytest.fixture(params=["standalone", "standalone-grpcio", "gateway"])
def start(request: pytest.FixtureRequest, loop: Background, engines: list[Engine], tmp_path: Path) -> Start:
    """Return a function that runs a router whose two engines take one request each; its argument limits waits."""

    @contextmanager
    def started(ttl: str) -> Iterator[Router]:
        text = CONFIG.replace("@ttl", ttl)
        options: dict[str, Any] = {}
        if request.param == "standalone-grpcio":
            options["transport"] = Transport.GRPCIO
        made = (
            behind_gateway(loop, engines, tmp_path, config_text=text)
            if request.param == "gateway"
            else router(loop, engines, config_text=text, **options)
        )
        with made as running:
            for engine in engines:
                loop.call(engine.gate.clear)
            try:
                yield running
            finally:
                for engine in engines:
                    loop.call(engine.gate.set)

    return started


class Full(NamedTuple):
    """A router whose engines both serve a request."""

    router: Router
    engines: list[Engine]
    clients: ThreadPoolExecutor
    busy: list[Future[str]]

    def ask(self, prompt: str, objective: str = "") -> Future[str]:
        """Send a request that has to wait."""
        before = self.waiting()
        headers = {"x-llm-d-inference-objective": objective}
        answer = self.clients.submit(self.router.complete, prompt, extra_headers=headers)
        self.router.loop.until(lambda: self.waiting() == before + 1, f"{prompt} waits")
        return answer

    def waiting(self) -> int:
        room = self.router.picker.core.gate.room
        assert room is not None
        return room.controller.size

    def arrived(self) -> list[str]:
        """Return the prompts that engines have seen."""
        return [body["prompt"] for engine in self.engines for body in engine.bodies]

    def outcomes(self) -> dict[QueueOutcome, int]:
        counts: dict[QueueOutcome, int] = {}
        for (outcome, _), n in self.router.picker.core.gate._counts.outcomes.items():
            counts[outcome] = counts.get(outcome, 0) + n
        return counts


Filled = Callable[[str], AbstractContextManager[Full]]


@pytest.fixture
def full(start: Start, engines: list[Engine]) -> Filled:
    @contextmanager
    def filled(ttl: str) -> Iterator[Full]:
        with start(ttl) as running, ThreadPoolExecutor(16) as clients:
            busy = [clients.submit(running.complete, f"busy {n}") for n in range(2)]
            running.loop.until(lambda: sum(len(engine.bodies) for engine in engines) == 2, "both are busy")
            stage = Full(running, engines, clients, busy)
            yield stage
            for engine in engines:
                running.loop.call(engine.gate.set)
            assert all(answer.result() for answer in busy)
            running.settle()
            assert stage.waiting() == 0

    return filled


def test_a_request_that_waits_is_answered_once_there_is_room(full: Filled) -> None:
    with full("60s") as stage:
        prompt = "x" * 200_000
        answer = stage.ask(prompt)
        assert prompt not in stage.arrived()
        stage.router.loop.call(stage.engines[0].gate.set)
        assert answer.result() in {engine.address for engine in stage.engines}
        assert prompt in stage.arrived()


def test_the_higher_priority_goes_first(full: Filled) -> None:
    with full("60s") as stage:
        answers = [stage.ask("batch", "batch"), stage.ask("usual"), stage.ask("urgent", "urgent")]
        stage.router.loop.call(stage.engines[0].gate.set)
        assert [answer.result() for answer in answers] == [stage.engines[0].address] * 3
        assert [p for p in stage.arrived() if not p.startswith("busy")] == ["urgent", "usual", "batch"]


def test_who_waits_too_long_is_told(full: Filled) -> None:
    with full("300ms") as stage:
        answer = stage.clients.submit(stage.router.complete, "late")
        with pytest.raises(openai.RateLimitError) as refusal:
            answer.result()
        assert "full for the 0.3 s" in refusal.value.response.text
        assert refusal.value.response.headers["x-llm-d-request-dropped-reason"] == "rejected-ttl-expired"
        assert stage.outcomes()[QueueOutcome.EVICTED_TTL] == 1
        assert "late" not in stage.arrived()


def test_a_proxy_that_buffers_is_patient_for_as_long_as_the_request_waits(
    loop: Background, engines: list[Engine], tmp_path: Path
) -> None:
    impatient: dict[str, Any] = {"request_mode": RequestMode.BUFFERED, "picker_timeout_s": 0.2}
    text = CONFIG.replace("@ttl", "1s")
    with (
        behind_gateway(loop, engines, tmp_path, config_text=text, **impatient) as running,
        ThreadPoolExecutor(3) as pool,
    ):
        for engine in engines:
            loop.call(engine.gate.clear)
        busy = [pool.submit(running.complete, f"busy {n}") for n in range(2)]
        loop.until(lambda: sum(len(engine.bodies) for engine in engines) == 2, "both are busy")
        with pytest.raises(openai.RateLimitError) as refusal:
            running.complete("late")
        assert refusal.value.response.headers["x-llm-d-request-dropped-reason"] == "rejected-ttl-expired"
        for engine in engines:
            loop.call(engine.gate.set)
        assert all(answer.result() for answer in busy)
        assert sum(len(engine.bodies) for engine in engines) == 2
        running.settle()


@pytest.mark.parametrize("ttl", ["3600s", "2h", "0s"])
def test_envoy_grants_the_time_that_is_asked_for_however_long_a_request_may_wait(
    loop: Background, engines: list[Engine], ttl: str
) -> None:
    admin_port = claim(LOOPBACK, 0, "--admin-port")

    def counted(name: str) -> int:
        with closing(HTTPConnection(LOOPBACK, admin_port, timeout=15)) as connection:
            connection.request("GET", f"/stats?filter=ext_proc.override_message_timeout_{name}$")
            return int(connection.getresponse().read().decode().rpartition(": ")[2])

    with (
        router(loop, engines, config_text=CONFIG.replace("@ttl", ttl), admin_port=admin_port) as running,
        ThreadPoolExecutor(3) as pool,
    ):
        for engine in engines:
            loop.call(engine.gate.clear)
        answers = [pool.submit(running.complete, f"busy {n}") for n in range(2)]
        loop.until(lambda: sum(len(engine.bodies) for engine in engines) == 2, "both are busy")
        answers.append(pool.submit(running.complete, "waits"))
        loop.until(lambda: counted("received") + counted("ignored") > 0, "Envoy was asked")
        assert (counted("received"), counted("ignored")) == (1, 0)
        for engine in engines:
            loop.call(engine.gate.set)
        assert all(answer.result() for answer in answers)


def test_a_client_that_leaves_waits_no_more_and_its_request_goes_nowhere(full: Filled) -> None:
    with full("60s") as stage:
        with closing(HTTPConnection(LOOPBACK, stage.router.port, timeout=15)) as connection:
            connection.request("POST", "/v1/completions", '{"model": "m", "prompt": "gone"}')
            stage.router.loop.until(lambda: stage.waiting() == 1, "it waits")
        stage.router.loop.until(lambda: stage.waiting() == 0, "it is gone")
        assert stage.outcomes()[QueueOutcome.EVICTED_CANCELLED] == 1
        answer = stage.ask("next")
        stage.router.loop.call(stage.engines[0].gate.set)
        assert answer.result()
        assert "gone" not in stage.arrived()


def test_who_waits_when_the_picker_ends_is_told(full: Filled) -> None:
    with full("60s") as stage:
        answer = stage.ask("x")
        stage.router.loop.call(stage.router.picker.core.gate.close)
        with pytest.raises(openai.InternalServerError) as refusal:
            answer.result()
        assert "shutting down" in refusal.value.response.text
        assert refusal.value.status_code == 503
        assert refusal.value.response.headers["x-llm-d-request-dropped-reason"] == "rejected-shutting-down"


def test_a_request_that_may_be_shed_is_ended_for_another_and_its_client_told(
    start: Start, engines: list[Engine]
) -> None:
    with start("60s") as running, ThreadPoolExecutor(4) as clients:
        batch = {"x-llm-d-inference-objective": "batch"}
        busy = [clients.submit(running.complete, f"batch {n}", extra_headers=batch) for n in range(2)]
        running.loop.until(lambda: sum(len(engine.bodies) for engine in engines) == 2, "both are busy")
        gone = sum(engine.gone for engine in engines)
        usual = clients.submit(running.complete, "usual")
        running.loop.until(lambda: sum(len(engine.bodies) for engine in engines) == 3, "it has room")
        running.loop.until(lambda: sum(engine.gone for engine in engines) == gone + 1, "the engine is told")
        for engine in engines:
            running.loop.call(engine.gate.set)
        assert usual.result()
        refusals = [answer.exception() for answer in busy if answer.exception() is not None]
        assert len(refusals) == 1
        refusal = refusals[0]
        assert isinstance(refusal, openai.RateLimitError)
        assert "request evicted by flow control" in refusal.response.text
        assert 1 <= int(refusal.response.headers["retry-after"]) <= 60
        assert refusal.response.headers["x-llm-d-request-dropped-reason"] == "evicted"
        running.settle()
