"""The queues on the event loop, and a picker's admission as its configuration changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from epp.decision import Cause, Outcome, RequestHead, RequestLabels, Usage
from epp.errors import EppError, Shed, ShuttingDown, WaitedTooLong
from epp.flowcontrol.controller import BATCH
from epp.flowcontrol.detectors import ConcurrencyDetector, ConcurrencyParameters
from epp.flowcontrol.fairness import ProgramAware
from epp.flowcontrol.gate import Gate
from epp.flowcontrol.settings import AdmissionPlan, BandSettings, FlowSettings
from epp.metrics.series import RequestTable
from epp.parsers import OpenAIParser
from epp.picking.director import Director
from epp.picking.request_steps import RequestSteps
from epp.pool.pool import Endpoint, EngineMetrics
from tests.epp.doubles import World, completion

ONE = ConcurrencyDetector(ConcurrencyParameters(max_concurrency=1))
OBJECTIVES = {"batch": -1, "usual": 0, "urgent": 9}


class Stage:
    """A director with two endpoints for one request each, and the outcome of every request."""

    def __init__(self, plan: AdmissionPlan | None = None, *, endpoints: int = 2) -> None:
        self.world = World(endpoints)
        self.now = 0.0
        self.gate = Gate(self.world.pool, RequestTable(), lambda: self.now)
        self.picks: dict[str, int] = {}
        self.errors: dict[str, EppError] = {}
        self.waiting: set[str] = set()
        self.director = self.world.director
        self.use(plan or AdmissionPlan(detector=ONE, objectives=OBJECTIVES, flow=FlowSettings(detector=ONE)))

    def use(self, plan: AdmissionPlan) -> None:
        self.director.use(RequestSteps(OpenAIParser(), self.director._profile, self.gate.use(plan), plan.objectives))

    def ask(self, name: str, objective: str = "usual", flow: str = "a") -> None:
        """Admit a request, which is placed when it may go on."""
        headers = {
            ":path": "/v1/completions", "x-llm-d-inference-objective": objective, "x-llm-d-inference-fairness-id": flow,
        }  # fmt: skip
        arrival = self.director.read(RequestHead(headers), completion())

        def resume(error: EppError | None) -> None:
            self.waiting.remove(name)
            if error is None:
                self.picks[name] = self.director.place(arrival).pick_id
            else:
                self.errors[name] = error

        def evict(error: EppError | None) -> None:
            assert error is not None
            self.errors[name] = error
            self.end(name)

        if self.director.admit(arrival, b"", resume) is None:
            self.picks[name] = self.director.place(arrival, evict).pick_id
        else:
            self.waiting.add(name)

    def end(self, name: str, usage: Usage | None = None) -> None:
        assert self.director.picks.ended(self.picks.pop(name), Outcome(Cause.COMPLETED, usage=usage))


async def turns() -> None:
    """Let everything that is due happen."""
    for _ in range(5):
        await asyncio.sleep(0)


def on_a_loop(scene: Callable[[], object]) -> None:
    asyncio.run(scene())  # type: ignore[arg-type]


def test_an_end_lets_the_next_one_on_by_priority() -> None:
    async def scene() -> None:
        stage = Stage()
        for name in ("a", "b"):
            stage.ask(name)
        stage.ask("later", "batch")
        stage.ask("sooner", "urgent")
        assert stage.waiting == {"later", "sooner"}
        stage.end("a")
        assert stage.waiting == {"later", "sooner"}, "not inside somebody else's end"
        await turns()
        assert stage.waiting == {"later"}
        stage.end("b")
        await turns()
        assert set(stage.picks) == {"sooner", "later"}

    on_a_loop(scene)


def test_an_endpoint_that_is_added_or_read_lets_requests_on() -> None:
    async def scene() -> None:
        stage = Stage(AdmissionPlan(flow=FlowSettings()))
        for candidate in stage.world.pool.candidates():
            stage.world.pool.observe(candidate.slot, EngineMetrics(waiting=10), 1.0)
        stage.ask("a")
        assert stage.waiting == {"a"}
        stage.world.pool.observe(stage.world.pool.candidates()[0].slot, EngineMetrics(), 2.0)
        stage.world.pool.observe(stage.world.pool.candidates()[1].slot, EngineMetrics(), 2.0)
        await turns()
        assert set(stage.picks) == {"a"}
        empty = Stage(endpoints=0)
        empty.ask("b")
        empty.world.pool.replace([Endpoint("10.0.0.9:8000")])
        await turns()
        assert set(empty.picks) == {"b"}

    on_a_loop(scene)


def test_requests_expire_by_a_timer_that_exists_only_while_requests_wait() -> None:
    async def scene() -> None:
        stage = Stage(AdmissionPlan(flow=FlowSettings(detector=ONE, ttl_s=5.0)))
        for name in ("a", "b", "c"):
            stage.ask(name)
        room = stage.gate.room
        assert room is not None
        await turns()
        assert room._timer is not None
        stage.now = 5.0
        room._timer.cancel()
        room._look()
        assert isinstance(stage.errors["c"], WaitedTooLong)
        assert (room._timer, room._pass) == (None, None)
        stage.end("a")
        await turns()
        assert (room._timer, room._pass) == (None, None)

    on_a_loop(scene)


def test_closing_sends_everybody_away() -> None:
    async def scene() -> None:
        stage = Stage()
        for name in ("a", "b", "c"):
            stage.ask(name)
        stage.gate.close()
        assert isinstance(stage.errors["c"], ShuttingDown)
        with pytest.raises(ShuttingDown):
            stage.ask("d")
        assert stage.world.telemetry.refusals == ["ServiceUnavailable"]

    on_a_loop(scene)


def test_what_was_used_is_charged_to_the_flow_that_used_it() -> None:
    async def scene() -> None:
        fairness = ProgramAware()
        settings = FlowSettings(detector=ONE, default=BandSettings(fairness=fairness))
        stage = Stage(AdmissionPlan(flow=settings))
        stage.ask("a", flow="tenant")
        before = fairness.service("tenant", 0.0)
        stage.end("a", Usage(completion_tokens=50))
        assert fairness.service("tenant", 0.0) == before + 100.0

    on_a_loop(scene)


def test_without_queues_only_negative_priorities_are_refused_while_the_pool_is_full() -> None:
    stage = Stage(AdmissionPlan(detector=ONE, objectives=OBJECTIVES))
    stage.ask("a", "batch")
    stage.ask("b", "batch")
    with pytest.raises(Shed, match=r"^system saturated, sheddable request dropped$") as refusal:
        stage.ask("c", "batch")
    assert (refusal.value.http_status, refusal.value.dropped_reason) == (429, None)
    assert stage.world.telemetry.refusals == ["ResourceExhausted"]
    for name in ("usual", "urgent", "unknown"):
        stage.ask(name, name)
    stage.end("a")
    stage.end("usual")
    stage.end("urgent")
    stage.end("unknown")
    stage.ask("d", "batch")


def test_without_negative_priorities_there_is_nothing_to_look_at() -> None:
    stage = Stage(AdmissionPlan(objectives={"a": 0, "b": 5}))
    assert stage.director._admission is None


def test_an_empty_pool_is_refused_as_empty_not_as_full() -> None:
    stage = Stage(AdmissionPlan(objectives=OBJECTIVES), endpoints=0)
    with pytest.raises(EppError) as refusal:
        stage.ask("a", "batch")
    assert refusal.value.http_status == 503


def test_the_objective_gives_the_priority_and_its_label() -> None:
    director: Director = Stage(AdmissionPlan(objectives=OBJECTIVES)).director
    for headers, objective, priority in (
        ({}, "", 0),
        ({"x-llm-d-inference-objective": "urgent"}, "urgent", 9),
        ({"x-gateway-inference-objective": "batch"}, "batch", -1),
        ({"x-llm-d-inference-objective": "urgent", "x-gateway-inference-objective": "batch"}, "urgent", 9),
        ({"x-llm-d-inference-objective": "who"}, "who", 0),
    ):
        arrival = director.read(RequestHead({":path": "/v1/completions", **headers}), completion())
        assert (arrival.request.objective, arrival.request.priority) == (objective, priority)
        assert arrival.labels == RequestLabels("m", "m", "default-flow", priority)


def test_those_who_wait_stay_when_the_settings_change_and_go_on_when_the_queues_are_no_more() -> None:
    async def scene() -> None:
        stage = Stage()
        for name in ("a", "b", "c", "d", "e"):
            stage.ask(name)
        two = ConcurrencyDetector(ConcurrencyParameters(max_concurrency=2))
        stage.use(AdmissionPlan(flow=FlowSettings(detector=two)))
        await turns()
        assert stage.waiting == {"e"}
        stage.use(AdmissionPlan())
        assert stage.waiting == set()
        assert stage.world.pool.on_change == []
        stage.ask("f")
        stage.use(AdmissionPlan(flow=FlowSettings(detector=two)))
        stage.ask("g")
        assert stage.waiting == {"g"}

    on_a_loop(scene)


def test_a_crowd_that_is_let_go_is_placed_some_at_a_time() -> None:
    async def scene() -> None:
        stage = Stage()
        names = [f"r{n}" for n in range(2 + 2 * BATCH + 1)]
        for name in names:
            stage.ask(name)
        stage.use(AdmissionPlan())
        left = [len(stage.waiting)]
        while stage.waiting:
            await asyncio.sleep(0)
            left.append(len(stage.waiting))
        assert sorted(set(left), reverse=True) == [BATCH + 1, 1, 0]
        assert list(stage.picks) == names

    on_a_loop(scene)


def test_a_request_that_may_be_shed_makes_room_for_others_that_wait() -> None:
    async def scene() -> None:
        settings = FlowSettings(detector=ONE, enable_eviction=True)
        stage = Stage(AdmissionPlan(objectives=OBJECTIVES, flow=settings))
        for name in ("old", "new"):
            stage.ask(name, "batch")
        stage.ask("more", "batch")
        await turns()
        assert stage.waiting == {"more"}, "not for one of the same priority"
        stage.ask("usual")
        await turns()
        assert (set(stage.errors), set(stage.picks)) == ({"new"}, {"old", "usual"})
        stage.ask("urgent", "urgent")
        await turns()
        assert set(stage.picks) == {"old", "usual"}, "the room that was made must have been seen"
        stage.now += 1.0
        stage.ask("too", "batch")
        await turns()
        assert set(stage.picks) == {"urgent", "usual"}
        room = stage.gate.room
        assert room is not None
        assert room.in_flight.issued == {0: 1, 9: 1}
        stage.gate.close()

    on_a_loop(scene)
