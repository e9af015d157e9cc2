"""Counts the streams of the ext-proc service: how many are open, how long they lasted and how they ended.

It wraps the service's handlers, so it counts on every transport, and costs nothing if it is off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from epp.histogram import Histogram
from epp.metrics.gauges import Histograms, Reading
from epp.metrics.tables import STREAM_DURATION, STREAMS, STREAMS_OPEN
from epp.wire.service import Call, Handler, Methods, Status

_GO = {Status.OK: "OK", Status.CANCELLED: "Canceled"}
"""The two codes that gRPC's Go library, whose names the label uses, writes in its own way."""


def code_name(status: Status) -> str:
    """Return the name of ``code`` as Go's gRPC writes it, such as ``InvalidArgument``."""
    return _GO.get(status) or "".join(word.capitalize() for word in status.name.split("_"))


class StreamCounts:
    """The counters of all streams. Owner: the event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.open = 0
        self.ended: Counter[str] = Counter()
        """The streams that have ended, by gRPC status."""
        self.durations = Histogram(STREAM_DURATION.bounds)
        self._clock = clock

    def watching(self, methods: Methods) -> Methods:
        """Return ``methods`` with their calls counted."""
        return {path: self._counted(factory) for path, factory in methods.items()}

    def readings(self) -> Iterator[Reading | Histograms]:
        """Return the readings for the metrics page."""
        yield Reading(STREAMS_OPEN.name, STREAMS_OPEN.help, (), [((), self.open)])
        codes = [((code,), count) for code, count in self.ended.items()]
        yield Reading(STREAMS.name, STREAMS.help, STREAMS.labels, codes, counter=True)
        yield Histograms(STREAM_DURATION, [((), self.durations)])

    def began(self) -> float:
        """Count a stream as open and return the time of its start."""
        self.open += 1
        return self._clock()

    def over(self, status: Status, began: float) -> None:
        """Count the end of the stream that began at that time."""
        self.open -= 1
        self.ended[code_name(status)] += 1
        self.durations.observe(self._clock() - began)

    def _counted(self, factory: Callable[[Call], Handler]) -> Callable[[Call], Handler]:
        return lambda call: Watched(call, factory, self)


class Watched:
    """Sits between a handler and its call, which do not notice it, and counts the end once."""

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
        """Return the metadata of the call."""
        return self._call.metadata

    @property
    def peer(self) -> str:
        """Return the peer of the call."""
        return self._call.peer

    def send(self, message: bytes) -> None:
        """Queue one message on the call."""
        self._call.send(message)

    def finish(self, status: Status = Status.OK, message: str = "") -> None:
        """Count the end and send the trailers."""
        self._end(status)
        self._call.finish(status, message)

    # Handler

    def received(self, message: bytes) -> None:
        """Pass the message to the handler."""
        try:
            self._handler.received(message)
        except Exception:
            self._end(Status.INTERNAL)
            raise

    def half_closed(self) -> None:
        """Pass the end of the messages to the handler."""
        try:
            self._handler.half_closed()
        except Exception:
            self._end(Status.INTERNAL)
            raise

    def cancelled(self) -> None:
        """Count a reset, a deadline or a lost connection, and pass it to the handler."""
        self._end(Status.CANCELLED)
        self._handler.cancelled()

    def _end(self, status: Status) -> None:
        if not self._over:
            self._over = True
            self._counts.over(status, self._began)
