"""In any order of events, the controller does the same as a plain list of queued requests."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings as profile
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from epp.errors import EppError, NoEndpoints, QueueFull, WaitedTooLong
from epp.flowcontrol.fairness import FairnessPolicy, GlobalStrict, ProgramAware, RoundRobin
from epp.flowcontrol.ordering import EarliestDeadline, Fcfs, OrderingPolicy, SloDeadline
from epp.flowcontrol.settings import BandSettings, FlowSettings
from tests.epp.flowcontrol.doubles import Room, Stage, arrival

PRIORITIES = st.sampled_from([-3, 0, 0, 7])
FLOWS = st.sampled_from("abc")
FAIRNESS = st.sampled_from([GlobalStrict, RoundRobin, ProgramAware])
ORDERINGS = st.sampled_from([Fcfs, EarliestDeadline, SloDeadline])
LIMITS = st.none() | st.integers(1, 60)


class Model(RuleBasedStateMachine):
    """The model: ``waiting`` has the queued requests in the order of their arrival."""

    @initialize(
        fairness=FAIRNESS, ordering=ORDERINGS, most=LIMITS, most_bytes=LIMITS, band=st.integers(1, 6), ttl=LIMITS
    )
    def start(
        self,
        fairness: type[FairnessPolicy[object]],  # type: ignore[type-var]
        ordering: type[OrderingPolicy],
        most: int | None,
        most_bytes: int | None,
        band: int,
        ttl: int | None,
    ) -> None:
        self.band = BandSettings(max_requests=band, max_bytes=40, fairness=fairness(), ordering=ordering())
        self.settings = FlowSettings(
            detector=Room(), max_requests=most, max_bytes=most_bytes, ttl_s=ttl, no_endpoint_ttl_s=9, default=self.band
        )
        self.stage = Stage(self.settings)
        self.waiting: dict[str, tuple[int, str, int, float, float]] = {}  # priority, flow, bytes, since, due
        self.number = 0

    @rule(priority=PRIORITIES, flow=FLOWS, size=st.integers(1, 25), slo_ms=st.none() | st.integers(0, 5000))
    def arrive(self, priority: int, flow: str, size: int, slo_ms: int | None) -> None:
        self.number += 1
        name, stage = f"{self.number}", self.stage
        headers = {} if slo_ms is None else {"x_llm_d_slo_ttft_ms": str(slo_ms)}
        wanted = arrival(priority, flow, size, stage.now, **headers)
        behind = any(p >= priority for p, *_ in self.waiting.values())
        due = stage.now + (slo_ms / 1000 if slo_ms is not None else 1e9)
        try:
            waits = stage.ask(name, wanted)
        except EppError as error:
            assert type(error) is (QueueFull if stage.endpoints else NoEndpoints)  # noqa: PT017
            assert self.full(priority, size)
            assert behind or not self.room()
            return
        assert waits == (behind or not self.room(before=1 if not waits else 0))
        if waits:
            assert not self.full(priority, size)
            self.waiting[name] = (priority, flow, size, stage.now, due)

    def room(self, before: int = 0) -> bool:
        detector = self.stage.detector
        return bool(self.stage.endpoints) and detector.taken - before < detector.places

    def full(self, priority: int, size: int) -> bool:
        mine = [w for w in self.waiting.values() if w[0] == priority]
        return (
            (
                self.settings.max_bytes is not None
                and sum(w[2] for w in self.waiting.values()) + size > self.settings.max_bytes
            )
            or (self.settings.max_requests is not None and len(self.waiting) >= self.settings.max_requests)
            or sum(w[2] for w in mine) + size > self.band.max_bytes
            or len(mine) >= self.band.max_requests
        )

    @rule(places=st.integers(0, 4))
    def make_room(self, places: int) -> None:
        stage = self.stage
        for name in stage.free(places):
            priority, flow, _, _, due = self.waiting.pop(name)
            assert all(other[0] <= priority for other in self.waiting.values()), "a higher priority still waits"
            rivals = [w for w in self.waiting.values() if w[0] == priority]
            if not isinstance(self.band.fairness, GlobalStrict):
                rivals = [w for w in rivals if w[1] == flow]
            if isinstance(self.band.ordering, SloDeadline):
                assert all(w[4] >= due for w in rivals), "somebody was due earlier"
            else:
                first = min([int(name), *(int(n) for n, w in self.waiting.items() if w in rivals)])
                assert first == int(name), "somebody came earlier"
        assert not self.waiting or not self.room(), "somebody waits although there is room"

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.waiting)))
        wait = self.stage.waits.pop(name)
        del self.waiting[name]
        wait.cancel()
        assert wait.gone

    @rule(seconds=st.floats(0, 30))
    def wait(self, seconds: float) -> None:
        stage = self.stage
        stage.now += seconds
        stage.controller.expire()
        limit = self.settings.ttl_s if stage.endpoints else self.settings.no_endpoint_ttl_s
        for name, (_, _, _, since, _) in list(self.waiting.items()):
            if limit is not None and since + limit <= stage.now:
                del self.waiting[name]
                assert isinstance(stage.ended[name], WaitedTooLong if stage.endpoints else NoEndpoints)

    @rule(endpoints=st.integers(0, 1))
    def endpoints_come_and_go(self, endpoints: int) -> None:
        self.stage.endpoints = endpoints

    @rule(fairness=FAIRNESS, ordering=ORDERINGS, most=LIMITS)
    def reconfigure(
        self,
        fairness: type[FairnessPolicy[object]],  # type: ignore[type-var]
        ordering: type[OrderingPolicy],
        most: int | None,
    ) -> None:
        self.band = BandSettings(
            max_requests=self.band.max_requests, max_bytes=40, fairness=fairness(), ordering=ordering()
        )
        self.settings = FlowSettings(
            detector=self.stage.detector, max_requests=most, max_bytes=self.settings.max_bytes,
            ttl_s=self.settings.ttl_s, no_endpoint_ttl_s=9, default=self.band,
        )  # fmt: skip
        self.stage.controller.use(self.settings)

    @invariant()
    def nothing_is_lost(self) -> None:
        if not hasattr(self, "stage"):
            return
        controller, seen = self.stage.controller, self.stage.seen
        assert set(self.stage.waits) == set(self.waiting)
        assert controller.size == len(self.waiting) == sum(band.size for band in controller.bands)
        size_bytes = sum(w[2] for w in self.waiting.values())
        assert controller.size_bytes == size_bytes == seen.held_bytes == sum(b.size_bytes for b in controller.bands)
        assert len(seen.outcomes) == self.number - len(self.waiting)


TestModel = Model.TestCase
TestModel.settings = profile(max_examples=120, stateful_step_count=40, deadline=None)
