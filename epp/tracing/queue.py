"""Complete traces on their way to whoever wants them: a bounded queue and a thread of its own.

A collector that is down, slow or hostile costs traces, which are counted, and never anybody's time: the request path
appends to a list, and the end of the process waits for a moment only.
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
"""Traces of some ten spans. Source: OpenTelemetry's batches of 512 spans, and its queue of 2048, of spans there."""
EVERY_S = 1.0
"""A guess: OpenTelemetry's is 5 s, and people who try it out wait for it."""
STOP_S = 2.0
"""How long the end of the process waits for traces to be written. A guess."""


class Sink(Protocol):
    """Who takes traces: ``epp.tracing.exporters``. Called by the queue's thread only, except ``close``."""

    def write(self, traces: Sequence[Trace]) -> bool:
        """Whether they were taken; may take its time, for at most some seconds."""

    def close(self) -> None:
        """Give up, also in the middle of ``write``; any thread."""


class TraceQueue:
    """``offer`` belongs to the event loop; the thread writes what was offered, oldest first."""

    def __init__(self, sink: Sink, *, every_s: float = EVERY_S) -> None:
        self.written = self.failed = self.dropped = 0
        """Traces: taken by the sink, refused by it, and never offered to it because the queue was full."""
        self._sink = sink
        self._every_s = every_s
        self._queue: deque[Trace] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many are yet to be offered to the sink."""
        return len(self._queue)

    def offer(self, trace: Trace) -> None:
        """Write ``trace`` soon, or drop it when too many wait."""
        if len(self._queue) >= MAX_QUEUED or self._stopping:
            self.dropped += 1
            return
        self._queue.append(trace)
        if len(self._queue) == BATCH:
            self._wake.set()

    def stop(self, timeout_s: float = STOP_S) -> None:
        """Write what waits, for at most ``timeout_s``; drop the rest. Not for the event loop: it waits."""
        self._stopping = True
        self._wake.set()
        self._thread.join(timeout_s)
        closing = threading.Thread(target=self._sink.close, name="traces-close", daemon=True)
        closing.start()
        closing.join(timeout_s)
        self.dropped += len(self._queue)

    def readings(self) -> Iterator[Reading]:
        """What became of traces."""
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
            except Exception:  # a library's defect must not end the thread
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
