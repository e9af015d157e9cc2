"""Streams of the ext-proc service in numbers: how many are open, how long they lasted and how they ended.

A shell around the service's handlers: it counts on every transport, and costs nothing where it is not asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from epp.histogram import Histogram
from epp.metrics.gauges import Histograms, Reading
from epp.metrics.tables import STREAM_DURATION, STREAMS, STREAMS_OPEN
from epp.wire.service import Call, Handler, Methods, Status

_GO = {Status.OK: "OK", Status.CANCELLED: "Canceled"}
"""gRPC's Go library, whose words the label has, writes these two in its own way."""


def code_name(status: Status) -> str:
    """As Go's gRPC writes it: ``InvalidArgument``."""
    return _GO.get(status) or "".join(word.capitalize() for word in status.name.split("_"))


class StreamCounts:
    """Owner: the event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.open = 0
        self.ended: Counter[str] = Counter()
        """By gRPC status."""
        self.durations = Histogram(STREAM_DURATION.bounds)
        self._clock = clock

    def watching(self, methods: Methods) -> Methods:
        """``methods``, whose calls are counted."""
        return {path: self._counted(factory) for path, factory in methods.items()}

    def readings(self) -> Iterator[Reading | Histograms]:
        """What Prometheus is told."""
        yield Reading(STREAMS_OPEN.name, STREAMS_OPEN.help, (), [((), self.open)])
        codes = [((code,), count) for code, count in self.ended.items()]
        yield Reading(STREAMS.name, STREAMS.help, STREAMS.labels, codes, counter=True)
        yield Histograms(STREAM_DURATION, [((), self.durations)])

    def began(self) -> float:
        """A stream is open; returns when it began."""
        self.open += 1
        return self._clock()

    def over(self, status: Status, began: float) -> None:
        """The stream that began then has ended."""
        self.open -= 1
        self.ended[code_name(status)] += 1
        self.durations.observe(self._clock() - began)

    def _counted(self, factory: Callable[[Call], Handler]) -> Callable[[Call], Handler]:
        return lambda call: Watched(call, factory, self)


class Watched:
    """A handler and its call, told apart from neither by the other. Counts the end once."""

    def __init__(self, call: Call, factory: Callable[[Call], Handler], counts: StreamCounts) -> None:
        self._call = call
        self._counts = counts
        self._began = counts.began()
        self._over = False
        try:
            self._handler = factory(self)
        except Exception:
            self._end(Status.INTERNAL)
            raise

    # Call

    @property
    def metadata(self) -> Sequence[tuple[str, str]]:
        """The call's."""
        return self._call.metadata

    @property
    def peer(self) -> str:
        """The call's."""
        return self._call.peer

    def send(self, message: bytes) -> None:
        """Queue one message."""
        self._call.send(message)

    def finish(self, status: Status = Status.OK, message: str = "") -> None:
        """Send the trailers."""
        self._end(status)
        self._call.finish(status, message)

    # Handler

    def received(self, message: bytes) -> None:
        """Hand it on."""
        try:
            self._handler.received(message)
        except Exception:
            self._end(Status.INTERNAL)
            raise

    def half_closed(self) -> None:
        """Hand it on."""
        try:
            self._handler.half_closed()
        except Exception:
            self._end(Status.INTERNAL)
            raise

    def cancelled(self) -> None:
        """Hand it on: reset, deadline, or connection lost."""
        self._end(Status.CANCELLED)
        self._handler.cancelled()

    def _end(self, status: Status) -> None:
        if not self._over:
            self._over = True
            self._counts.over(status, self._began)
