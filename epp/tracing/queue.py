"""Complete traces on their way to a sink: a bounded queue, and a thread that empties it.

A collector that is down, slow or hostile costs traces, which are counted, but never delays anything else: the request
path appends to a list, and the end of the process waits only for a moment.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol

from epp.metrics.gauges import Reading
from epp.tracing.trace import Trace

log = logging.getLogger(__name__)

MAX_QUEUED = 2048
BATCH = 64
"""Traces of about ten spans each. Source: OpenTelemetry's batches of 512 spans, and its queue of 2048 entries, which
are spans there.
"""
EVERY_S = 1.0
"""A guess: OpenTelemetry's is 5 s, but users who try out tracing wait for the result."""
STOP_S = 2.0
"""How long the end of the process waits for traces to be written. A guess."""


class Sink(Protocol):
    """Takes complete traces (``epp.tracing.exporters``). Called by the queue's thread only, except for ``close``."""

    def write(self, traces: Sequence[Trace]) -> bool:
        """Write ``traces``, and return whether they were taken. May block for a few seconds."""

    def close(self) -> None:
        """Give up, even in the middle of ``write``. Any thread may call it."""


class TraceQueue:
    """A bounded queue of traces with its thread, which writes the oldest first.

    Owner: the event loop calls ``offer``; the thread calls the sink.
    """

    def __init__(self, sink: Sink, *, every_s: float = EVERY_S) -> None:
        self.written = self.failed = self.dropped = 0
        """How many traces the sink has taken, how many it has refused, and how many were dropped because the queue was
        full.
        """
        self._sink = sink
        self._every_s = every_s
        self._queue: deque[Trace] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many traces have not been offered to the sink yet."""
        return len(self._queue)

    def offer(self, trace: Trace) -> None:
        """Queue ``trace`` to be written soon, or drop it if the queue is full."""
        if len(self._queue) >= MAX_QUEUED or self._stopping:
            self.dropped += 1
            return
        self._queue.append(trace)
        if len(self._queue) == BATCH:
            self._wake.set()

    def stop(self, timeout_s: float = STOP_S) -> None:
        """Write the queued traces for at most ``timeout_s``, and drop the rest. Blocks, so not for the event loop."""
        self._stopping = True
        self._wake.set()
        self._thread.join(timeout_s)
        closing = threading.Thread(target=self._sink.close, name="traces-close", daemon=True)
        closing.start()
        closing.join(timeout_s)
        self.dropped += len(self._queue)

    def readings(self) -> Iterator[Reading]:
        """Yield the metrics of queued, written, failed and dropped traces."""
        yield Reading("tierwise_traces_queued", "Traces that wait to be written.", (), [((), len(self._queue))])
        yield Reading(
            "tierwise_traces",
            "Traces by what became of them: written, failed (not taken by the exporter), dropped (the queue was full).",
            ("result",),
            [(("written",), self.written), (("failed",), self.failed), (("dropped",), self.dropped)],
            counter=True,
        )

    def _run(self) -> None:
        while not self._stopping:
            self._wake.wait(self._every_s)
            self._wake.clear()
            self._drain()
        self._drain()

    def _drain(self) -> None:
        queue = self._queue
        while queue:
            batch = [queue.popleft() for _ in range(min(BATCH, len(queue)))]
            try:
                taken = self._sink.write(batch)
            except Exception:  # a bug in a library must not end the thread
                log.exception("traces could not be written")
                taken = False
            if taken:
                self.written += len(batch)
            else:
                if not self.failed:
                    log.warning("traces are not taken by the collector; tierwise_traces_total counts them as failed")
                self.failed += len(batch)
                if self._stopping:
                    return
