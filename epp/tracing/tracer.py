"""The director's callbacks that record traced requests."""

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
"""Maximum number of traced requests that have not ended; further ones are not traced. A guess: 20 MB."""

Timer = Callable[[float], None]
Timers = Callable[[str, str, str], Timer]


class Traces(Protocol):
    """Takes complete traces: ``epp.tracing.queue.TraceQueue``."""

    def offer(self, trace: Trace) -> None:
        """Take ``trace`` without waiting or raising."""

    def readings(self) -> Iterator[Reading]:
        """Yield the metrics of the traces that were offered."""


class Tracer:
    """Starts, fills and ends the traces of sampled requests.

    Owner: the event loop. O(1) for requests that are not traced; no method waits or raises.
    """

    def __init__(
        self,
        sampler: Sampler,
        traces: Traces,
        *,
        clock: Callable[[], float] = time.monotonic,
        random_bits: Callable[[int], int] = random.getrandbits,
    ) -> None:
        self.not_kept = 0
        """How many traces were given up because too many requests were open."""
        self._sampler = sampler
        self._traces = traces
        self._clock = clock
        self._bits = random_bits
        self._open: dict[int, Trace] = {}
        self._runs: list[Run] | None = None  # of the request being placed, if it is traced

    def begin(self, head: RequestHead, now: float) -> tuple[str, Trace | None]:
        """Return the ``traceparent`` for the engine, and the trace if the request is sampled.

        An empty ``traceparent`` keeps the client's.
        """
        said = head.headers.get(TRACEPARENT)
        parent = parent_of(said) if said else None
        trace_id = parent.trace_id if parent is not None else self._bits(128) or 1
        sampled = self._sampler.samples(trace_id, parent)
        if not sampled and parent is not None and not parent.sampled:
            return "", None
        context = TraceContext(trace_id, self._bits(64) or 1, sampled)
        return context.header, Trace(context, parent, head.received_s or now, now) if sampled else None

    def timing(self, timers: Timers) -> Timers:
        """Wrap ``timers`` so that they also record the runs of a traced request."""

        def timer(extension_point: str, plugin_type: str, plugin_name: str) -> Timer:
            observe, clock = timers(extension_point, plugin_type, plugin_name), self._clock

            def took(seconds: float) -> None:
                observe(seconds)
                if self._runs is not None:
                    self._runs.append(Run(extension_point, plugin_type, plugin_name, seconds, clock()))

            return took

        return timer

    def placing(self, trace: Trace | None) -> None:
        """Record the runs of plugins in ``trace`` from now on."""
        self._runs = trace.runs if trace is not None else None

    def placed(self, trace: Trace, decision: Decision, began: float, considered: int) -> None:
        """Record that a traced request was sent to an endpoint."""
        self._runs = None
        if len(self._open) >= MAX_OPEN:
            self.not_kept += 1
            return
        trace.labels = decision.labels
        trace.placed = placed(decision, began, self._clock(), considered)
        self._open[decision.pick_id] = trace

    def refused(self, trace: Trace | None, labels: RequestLabels, error: EppError) -> None:
        """Record that a request was refused, and end its trace."""
        self._runs = None
        if trace is not None:
            trace.labels = labels
            trace.error = error.code
            trace.ended_s = self._clock()
            self._traces.offer(trace)

    def ended(self, pick_id: int, outcome: Outcome) -> None:
        """Record that a pick has ended, and end its trace."""
        trace = self._open.pop(pick_id, None)
        if trace is not None:
            trace.outcome = outcome
            took = outcome.duration_s
            trace.ended_s = self._clock() if took is None else max(trace.received_s + took, trace.read_s)
            self._traces.offer(trace)

    def readings(self) -> Iterator[Reading]:
        """Yield the metrics of open, given-up and offered traces."""
        yield Reading("tierwise_traces_open", "Traced requests that have not ended.", (), [((), len(self._open))])
        yield Reading(
            "tierwise_traces_not_kept",
            "Requests that were to be traced and were not, because too many traced ones had not ended.",
            (),
            [((), self.not_kept)],
            counter=True,
        )
        yield from self._traces.readings()
