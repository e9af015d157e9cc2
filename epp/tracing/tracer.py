"""What the director tells of requests, for those that are traced."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from epp.decision import Decision, Outcome, RequestHead, RequestLabels
from epp.errors import EppError
from epp.metrics.gauges import Reading
from epp.tracing.context import TRACEPARENT, TraceContext, parent_of
from epp.tracing.sampler import Sampler
from epp.tracing.trace import Run, Trace, placed

MAX_OPEN = 10_000
"""Traced requests that have not ended; more are not traced. A guess: 20 MB."""

Timer = Callable[[float], None]
Timers = Callable[[str, str, str], Timer]


class Traces(Protocol):
    """Who takes traces that are complete: ``epp.tracing.queue.TraceQueue``."""

    def offer(self, trace: Trace) -> None:
        """Never waits, never raises."""

    def readings(self) -> Iterator[Reading]:
        """What became of them."""


class Tracer:
    """Owner: the event loop. O(1) for what is not traced; nothing here waits or raises."""

    def __init__(
        self,
        sampler: Sampler,
        traces: Traces,
        *,
        clock: Callable[[], float] = time.monotonic,
        random_bits: Callable[[int], int] = random.getrandbits,
    ) -> None:
        self.not_kept = 0
        """Traces given up because too many requests were open."""
        self._sampler = sampler
        self._traces = traces
        self._clock = clock
        self._bits = random_bits
        self._open: dict[int, Trace] = {}
        self._runs: list[Run] | None = None  # of the request being placed, if it is traced

    def begin(self, head: RequestHead, now: float) -> tuple[str, Trace | None]:
        """The ``traceparent`` for the engine (empty to leave the client's as it is), and the trace if there is one."""
        said = head.headers.get(TRACEPARENT)
        parent = parent_of(said) if said else None
        trace_id = parent.trace_id if parent is not None else self._bits(128) or 1
        sampled = self._sampler.samples(trace_id, parent)
        if not sampled and parent is not None and not parent.sampled:
            return "", None
        context = TraceContext(trace_id, self._bits(64) or 1, sampled)
        return context.header, Trace(context, parent, head.received_s or now, now) if sampled else None

    def timing(self, timers: Timers) -> Timers:
        """``timers`` that also note the runs of a traced request."""

        def timer(extension_point: str, plugin_type: str, plugin_name: str) -> Timer:
            observe, clock = timers(extension_point, plugin_type, plugin_name), self._clock

            def took(seconds: float) -> None:
                observe(seconds)
                if self._runs is not None:
                    self._runs.append(Run(extension_point, plugin_type, plugin_name, seconds, clock()))

            return took

        return timer

    def placing(self, trace: Trace | None) -> None:
        """The runs of plugins from now on are this trace's."""
        self._runs = trace.runs if trace is not None else None

    def placed(self, trace: Trace, decision: Decision, began: float, considered: int) -> None:
        """A traced request goes to an endpoint."""
        self._runs = None
        if len(self._open) >= MAX_OPEN:
            self.not_kept += 1
            return
        trace.labels = decision.labels
        trace.placed = placed(decision, began, self._clock(), considered)
        self._open[decision.pick_id] = trace

    def refused(self, trace: Trace | None, labels: RequestLabels, error: EppError) -> None:
        """It goes nowhere."""
        self._runs = None
        if trace is not None:
            trace.labels = labels
            trace.error = error.code
            trace.ended_s = self._clock()
            self._traces.offer(trace)

    def ended(self, pick_id: int, outcome: Outcome) -> None:
        """A pick has ended."""
        trace = self._open.pop(pick_id, None)
        if trace is not None:
            trace.outcome = outcome
            took = outcome.duration_s
            trace.ended_s = self._clock() if took is None else max(trace.received_s + took, trace.read_s)
            self._traces.offer(trace)

    def readings(self) -> Iterator[Reading]:
        """What became of traces."""
        yield Reading("tierwise_traces_open", "Traced requests that have not ended.", (), [((), len(self._open))])
        yield Reading(
            "tierwise_traces_not_kept",
            "Requests that were to be traced and were not, because too many traced ones had not ended.",
            (),
            [((), self.not_kept)],
            counter=True,
        )
        yield from self._traces.readings()
