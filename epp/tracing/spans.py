"""Turns a trace into the spans that the Go picker writes: same names, and same attributes where they mean the same."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode
from opentelemetry.util.types import AttributeValue

from epp.tracing.trace import Placed, Run, Trace

TOP = 5
"""How many endpoints the picker's span lists with their totals. Source: the Go picker's."""
NAME_CHARACTERS = 256
_SCOPE = InstrumentationScope("tierwise")
_OK = Status(StatusCode.UNSET)
Attributes = dict[str, AttributeValue]


def wall_offset_ns() -> int:
    """Return the nanoseconds to add to the requests' clock to get Unix time."""
    return time.time_ns() - time.monotonic_ns()


class SpanWriter:
    """Builds the spans of traces. Owner: the exporting thread."""

    def __init__(self, resource: Resource, *, offset_ns: Callable[[], int] = wall_offset_ns) -> None:
        self._resource = resource
        self._offset_ns = offset_ns
        self._random = random.Random()

    def spans(self, trace: Trace) -> list[ReadableSpan]:
        """Return all spans of ``trace``, the outermost last."""
        return list(_OfOne(trace, self._resource, self._offset_ns(), self._random).spans())


class _OfOne:
    def __init__(self, trace: Trace, resource: Resource, offset_ns: int, ids: random.Random) -> None:
        self._trace = trace
        self._resource = resource
        self._offset_ns = offset_ns
        self._ids = ids
        self._flags = TraceFlags(TraceFlags.SAMPLED)
        self._root = self._context(trace.context.span_id)

    def spans(self) -> Iterator[ReadableSpan]:
        trace = self._trace
        decided_s = trace.placed.ended_s if trace.placed is not None else trace.ended_s
        orchestration = self._context()
        if trace.placed is not None and trace.placed.candidates:
            yield from self._profile(orchestration, trace.placed)
        yield self._span(
            "gateway.request_orchestration",
            orchestration,
            self._root,
            trace.read_s,
            decided_s,
            {"target_model": trace.labels.target_model_name[:NAME_CHARACTERS], "request_prio": trace.labels.priority},
            kind=SpanKind.SERVER,
            error=trace.error,
        )
        parent = None
        if trace.parent is not None:
            parent = SpanContext(trace.parent.trace_id, trace.parent.span_id, True, self._flags)
        yield self._span(
            "gateway.request",
            self._root,
            parent,
            trace.received_s,
            trace.ended_s,
            self._of_request(),
            kind=SpanKind.SERVER,
            error=trace.error or ",".join(trace.outcome.errors if trace.outcome is not None else ()),
        )

    def _of_request(self) -> Attributes:
        trace, outcome = self._trace, self._trace.outcome
        found: dict[str, AttributeValue | None] = {
            "gen_ai.request.model": trace.labels.model_name[:NAME_CHARACTERS],
        }
        if trace.placed is not None:
            found["tierwise.endpoints"] = list(trace.placed.chosen)
            found["tierwise.prompt_tokens_estimate"] = trace.placed.prompt_tokens
        if outcome is not None:
            found |= {
                "http.response.status_code": outcome.status,
                "tierwise.cause": outcome.cause.value,
                "tierwise.served_by": outcome.served_by,
                "tierwise.time_to_first_byte_s": outcome.ttft_s,
                "http.response.body.size": outcome.response_bytes,
            }
            if outcome.usage is not None:
                found["gen_ai.usage.input_tokens"] = outcome.usage.prompt_tokens
                found["gen_ai.usage.output_tokens"] = outcome.usage.completion_tokens
                found["tierwise.usage.cached_tokens"] = outcome.usage.cached_tokens
        return {name: value for name, value in found.items() if value is not None}

    def _profile(self, parent: SpanContext, placed: Placed) -> Iterator[ReadableSpan]:
        profile = self._context()
        by_point: dict[str, list[Run]] = {}
        for run in self._trace.runs:
            by_point.setdefault(run.extension_point, []).append(run)
        count = len(placed.candidates)
        for point, prefix in (("DataProducer", "tierwise.producer"), ("PreRequest", "tierwise.learn")):
            for run in by_point.get(point, ()):
                yield self._run(f"{prefix}.{run.plugin_type}", profile, run, {"tierwise.plugin.name": run.plugin_name})
        if filters := by_point.get("Filter"):
            yield self._span(
                "filter_endpoints",
                self._context(),
                profile,
                filters[0].ended_s - filters[0].seconds,
                filters[-1].ended_s,
                {
                    "llm_d.epp.filter.candidate_endpoints": placed.considered,
                    "llm_d.epp.filter.filtered_endpoints": count,
                },
            )
        if scorers := by_point.get("Scorer"):
            scoring = self._context()
            for run in scorers:
                yield self._run(f"llm_d.epp.scorer.{run.plugin_type}", scoring, run, scored(run, placed))
            yield self._span(
                "llm_d.epp.scoring",
                scoring,
                profile,
                scorers[0].ended_s - scorers[0].seconds,
                scorers[-1].ended_s,
                {"llm_d.epp.scorer.count": len(scorers), "llm_d.epp.scoring.candidate_endpoints": count},
            )
        for run in by_point.get("Picker", ()):
            yield self._run("pick_endpoints", profile, run, top(placed))
        yield self._span(
            "run_scheduler_profile",
            profile,
            parent,
            placed.began_s,
            placed.ended_s,
            {"llm_d.epp.scheduling.profile.name": "default"},
        )

    def _run(self, name: str, parent: SpanContext, run: Run, attributes: Attributes) -> ReadableSpan:
        return self._span(name, self._context(), parent, run.ended_s - run.seconds, run.ended_s, attributes)

    def _context(self, span_id: int = 0) -> SpanContext:
        return SpanContext(self._trace.context.trace_id, span_id or self._ids.getrandbits(64) or 1, False, self._flags)

    def _span(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        began_s: float,
        ended_s: float,
        attributes: Attributes,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        error: str = "",
    ) -> ReadableSpan:
        return ReadableSpan(
            name=name,
            context=context,
            parent=parent,
            resource=self._resource,
            attributes=attributes,
            kind=kind,
            status=Status(StatusCode.ERROR, error) if error else _OK,
            start_time=int(began_s * 1e9) + self._offset_ns,
            end_time=int(ended_s * 1e9) + self._offset_ns,
            instrumentation_scope=_SCOPE,
        )


def scored(run: Run, placed: Placed) -> Attributes:
    """Return the attributes of a scorer's span."""
    attributes: Attributes = {
        "llm_d.epp.scorer.type": run.plugin_type,
        "llm_d.epp.scorer.name": run.plugin_name,
        "llm_d.epp.scorer.candidate_endpoints": len(placed.candidates),
    }
    if run.plugin_name in placed.scores:  # it has not failed
        weight, column = placed.scores[run.plugin_name]
        attributes |= {
            "llm_d.epp.scorer.weight": float(weight),
            "llm_d.epp.scorer.score.max": float(max(column)),
            "llm_d.epp.scorer.score.avg": sum(column) / len(column),
            "llm_d.epp.scorer.endpoints_scored": len(column),
        }
    return attributes


def top(placed: Placed) -> Attributes:
    """Return the attributes of the picker's span: the candidates with the highest totals."""
    best = sorted(range(len(placed.totals)), key=lambda i: -placed.totals[i])[:TOP]
    return {
        "llm_d.epp.picker.candidate_endpoints": len(placed.candidates),
        "llm_d.epp.picker.top_endpoints": [placed.candidates[i] for i in best],
        "llm_d.epp.picker.top_scores": [float(placed.totals[i]) for i in best],
    }
