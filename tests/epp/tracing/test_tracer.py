"""From requests to traces, and from traces to spans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from epp.decision import Cause, Outcome, RequestHead, Usage
from epp.errors import BadRequest, NoEndpoints, Saturated
from epp.extproc.exchange import Exchange
from epp.extproc.options import ExchangeSettings
from epp.metrics.gauges import Reading
from epp.parsers import OpenAIParser
from epp.picking.director import Director
from epp.picking.profile import Profile
from epp.picking.request_steps import RequestSteps
from epp.tracing import tracer as tracer_module
from epp.tracing.context import TraceContext, parent_of
from epp.tracing.sampler import Sampler
from epp.tracing.spans import SpanWriter
from epp.tracing.trace import Trace
from epp.tracing.tracer import Tracer
from scorers.base import CachedPrefix, Candidate, NoParameters, Producer, Request, Scorer, Slot, Tier
from scorers.load.kv_utilization import KvUtilizationScorer
from scorers.load.queue import QueueScorer
from scorers.pickers import MaxScorePicker
from tests.epp.doubles import (
    BUFFERED,
    FULL_DUPLEX,
    NONE,
    Only,
    World,
    completion,
    destination_of,
    read,
    request_body,
    request_headers,
    request_trailers,
    response_body,
    response_headers,
)

PARENT = TraceContext(0xABC, 0xDEF, sampled=True)
SECRET = "a secret prompt"


class Holds(Producer[NoParameters]):
    type_name = "holds"

    def produce(self, request: Request, candidates: object) -> None:
        request.cached["gpu"] = CachedPrefix(Tier.GPU, 100, {Slot(0): 10})

    def picked(self, request: Request, candidate: Candidate) -> None:
        """Ignore the pick, since nothing is learned."""


class Kept:
    """A queue that keeps the traces it is offered."""

    def __init__(self) -> None:
        self.traces: list[Trace] = []

    def offer(self, trace: Trace) -> None:
        self.traces.append(trace)

    def readings(self) -> Iterator[Reading]:
        return iter(())


class Traced:
    """A director with a tracer for its requests."""

    def __init__(self, sampler: Sampler | None = None, endpoints: int = 2, profile: Profile | None = None) -> None:
        self.kept = Kept()
        self.now = 100.0
        world = World(endpoints)
        self.world = world
        self.tracer = Tracer(sampler or Sampler(1.0), self.kept, clock=self.tick)
        scorers: list[tuple[Scorer[Any], float]] = [(QueueScorer(), 2.0), (KvUtilizationScorer(), 1.0)]
        self.director = Director(
            RequestSteps(
                OpenAIParser(), profile or Profile([Only("10.0.0.1:8000")], [Holds()], scorers, MaxScorePicker())
            ),
            world.pool,
            world.ledger,
            world.telemetry,
            clock=self.tick,
            tracer=self.tracer,
        )

    def tick(self) -> float:
        """Advance the clock by a millisecond at each reading."""
        self.now += 0.001
        return self.now

    def spans(self) -> dict[str, ReadableSpan]:
        (trace,) = self.kept.traces
        return {span.name: span for span in SpanWriter(Resource({}), offset_ns=lambda: 0).spans(trace)}


def head(**headers: str) -> RequestHead:
    named = {":path": "/v1/completions"} | {name.replace("_", "-"): value for name, value in headers.items()}
    return RequestHead(named, None, 99.0)


def outcome() -> Outcome:
    usage = Usage(prompt_tokens=7, completion_tokens=3, cached_tokens=2)
    return Outcome(Cause.COMPLETED, 200, duration_s=5.0, ttft_s=0.5, response_bytes=30, usage=usage)


def test_a_request_is_a_tree_of_spans_named_as_the_go_picker_names_them() -> None:
    traced = Traced()
    decision = traced.director.decide(head(traceparent=PARENT.header), completion(SECRET))
    traced.director.picks.ended(decision.pick_id, outcome())
    spans = traced.spans()
    tree = {
        "gateway.request": None,
        "gateway.request_orchestration": "gateway.request",
        "run_scheduler_profile": "gateway.request_orchestration",
        "tierwise.producer.holds": "run_scheduler_profile",
        "tierwise.learn.holds": "run_scheduler_profile",
        "filter_endpoints": "run_scheduler_profile",
        "llm_d.epp.scoring": "run_scheduler_profile",
        "llm_d.epp.scorer.queue-scorer": "llm_d.epp.scoring",
        "llm_d.epp.scorer.kv-cache-utilization-scorer": "llm_d.epp.scoring",
        "pick_endpoints": "run_scheduler_profile",
    }
    assert spans.keys() == tree.keys()
    for name, parent in tree.items():
        span = spans[name]
        assert span.context is not None
        assert span.parent is not None
        assert span.context.trace_id == span.parent.trace_id == PARENT.trace_id
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time <= span.end_time
        if parent is not None:
            above = spans[parent]
            assert above.context is not None
            assert span.parent.span_id == above.context.span_id
            assert above.start_time is not None
            assert above.end_time is not None
            assert above.start_time <= span.start_time
            assert span.end_time <= above.end_time
    root = spans["gateway.request"]
    assert root.parent is not None
    assert root.parent.span_id == PARENT.span_id
    assert root.kind is SpanKind.SERVER
    assert (root.start_time, root.end_time) == (99_000_000_000, 104_000_000_000)
    told = parent_of(decision.traceparent)
    assert told is not None
    assert root.context is not None
    assert (told.trace_id, told.span_id, told.sampled) == (PARENT.trace_id, root.context.span_id, True)


def test_spans_say_why_an_endpoint_was_chosen_and_how_it_ended() -> None:
    traced = Traced(profile=Profile([], [], [(QueueScorer(), 2.0)], MaxScorePicker()))
    decision = traced.director.decide(head(), completion(SECRET))
    traced.director.picks.ended(decision.pick_id, outcome())
    spans = traced.spans()
    assert spans["pick_endpoints"].attributes == {
        "llm_d.epp.picker.candidate_endpoints": 2,
        "llm_d.epp.picker.top_endpoints": ["10.0.0.1:8000", "10.0.0.2:8000"],
        "llm_d.epp.picker.top_scores": [2.0, 0.0],
    }
    scorer = spans["llm_d.epp.scorer.queue-scorer"].attributes or {}
    assert scorer["llm_d.epp.scorer.weight"] == 2.0
    assert (scorer["llm_d.epp.scorer.score.max"], scorer["llm_d.epp.scorer.score.avg"]) == (1.0, 0.5)
    root = spans["gateway.request"].attributes or {}
    assert root["gen_ai.request.model"] == "m"
    assert root["tierwise.endpoints"] == ["10.0.0.1:8000"]
    assert root["http.response.status_code"] == 200
    assert (root["gen_ai.usage.input_tokens"], root["gen_ai.usage.output_tokens"]) == (7, 3)


def test_no_prompt_and_no_header_value_is_in_any_span() -> None:
    traced = Traced()
    headers = {"authorization": "Bearer hunter2", "x_request_id": "id-1", "x_llm_d_inference_fairness_id": "tenant-9"}
    decision = traced.director.decide(head(**headers), completion(SECRET))
    traced.director.picks.ended(decision.pick_id, outcome())
    written = "".join(span.to_json() for span in traced.spans().values())
    assert [said for said in (SECRET, *headers.values()) if said in written] == []


@pytest.mark.parametrize(
    ("traced", "body", "refusal"),
    [
        (Traced(), b"{", BadRequest),
        (Traced(endpoints=0), completion(), NoEndpoints),
        (Traced(endpoints=0), b"", NoEndpoints),
        (Traced(profile=Profile([Only("nobody")], [], [], MaxScorePicker())), completion(), Saturated),
    ],
)
def test_a_refused_request_is_a_trace_with_an_error(traced: Traced, body: bytes, refusal: type[BadRequest]) -> None:
    with pytest.raises(refusal):
        traced.director.decide(head(), body) if body else traced.director.decide_bodiless(head())
    spans = traced.spans()
    assert spans.keys() == {"gateway.request", "gateway.request_orchestration"}
    for span in spans.values():
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, refusal.code)


def test_a_request_without_a_body_has_no_profile() -> None:
    traced = Traced()
    decision = traced.director.decide_bodiless(head())
    traced.director.picks.ended(decision.pick_id, Outcome(Cause.LEASE_EXPIRED))
    assert traced.spans().keys() == {"gateway.request", "gateway.request_orchestration"}


def test_what_is_not_sampled_leaves_no_trace_and_tells_the_engine_so() -> None:
    traced = Traced(Sampler(0.0))
    decision = traced.director.decide(head(), completion())
    told = parent_of(decision.traceparent)
    assert told is not None
    assert not told.sampled
    traced.director.picks.ended(decision.pick_id, outcome())
    assert traced.kept.traces == []


def test_a_caller_s_unsampled_context_is_left_as_it_is() -> None:
    traced = Traced()
    decision = traced.director.decide(head(traceparent=PARENT._replace(sampled=False).header), completion())
    assert decision.traceparent == ""
    assert traced.kept.traces == []


def test_runs_belong_to_the_request_that_caused_them() -> None:
    traced = Traced(Sampler(0.0))
    sampled = traced.director.decide(head(traceparent=PARENT.header), completion())
    traced.director.decide(head(), completion())
    traced.director.picks.ended(sampled.pick_id, outcome())
    assert len([name for name in traced.spans() if name.startswith("llm_d.epp.scorer.")]) == 2
    assert len(traced.kept.traces[0].runs) == 6


def test_traced_requests_that_never_end_are_bounded() -> None:
    traced = Traced()
    for _ in range(tracer_module.MAX_OPEN + 10):
        traced.director.decide_bodiless(head())
    assert traced.tracer.not_kept == 10
    values = {reading.name: next(iter(reading.samples))[1] for reading in traced.tracer.readings()}
    assert values == {"tierwise_traces_open": tracer_module.MAX_OPEN, "tierwise_traces_not_kept": 10}


# The header to the engine, in every place where it can be set.


@pytest.mark.parametrize(
    ("modes", "then", "place"),
    [
        ((FULL_DUPLEX, FULL_DUPLEX), request_body(completion()), "request_headers"),
        ((BUFFERED, NONE), request_body(completion()), "request_body"),
        ((FULL_DUPLEX, NONE), request_trailers(), "request_headers"),
        ((BUFFERED, NONE), request_trailers(), "request_trailers"),
    ],
)
@pytest.mark.parametrize("scores", [True, False])
def test_the_engine_is_told_its_parent_beside_its_destination(
    modes: tuple[int, int], then: object, place: str, scores: bool
) -> None:
    traced = Traced()
    exchange = Exchange(traced.director, ExchangeSettings(emit_endpoint_scores=scores))
    answers = exchange.received(request_headers(modes=modes, traceparent=PARENT.header), 1.0)
    answers += exchange.received(then, 2.0)  # type: ignore[arg-type]
    (decided,) = (a for a in read(answers) if a.HasField("dynamic_metadata"))
    assert decided.WhichOneof("response") == place
    assert destination_of(decided).startswith("10.0.0.")
    if place == "request_trailers":
        return
    mutation = getattr(decided, place).response.header_mutation
    told = [h.header.raw_value.decode() for h in mutation.set_headers if h.header.key == "traceparent"]
    assert [(parent_of(value) or PARENT).trace_id for value in told] == [PARENT.trace_id]
    assert told != [PARENT.header]


def test_the_trace_of_an_exchange_is_as_long_as_the_exchange() -> None:
    traced = Traced()
    exchange = Exchange(traced.director, ExchangeSettings())
    exchange.received(request_headers(), 90.0)
    exchange.received(request_body(completion()), 100.0)
    exchange.received(response_headers(), 103.0)
    exchange.received(response_body(b"{}"), 107.0)
    root = traced.spans()["gateway.request"]
    assert (root.start_time, root.end_time) == (90_000_000_000, 107_000_000_000)
