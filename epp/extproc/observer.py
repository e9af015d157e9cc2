"""Watches the response to one pick as it passes a stream, and derives the outcome from it."""

from __future__ import annotations

from epp.decision import GOOD_STATUSES, MODEL_SERVER_ERROR, Cause, Outcome
from epp.extproc import messages
from epp.extproc.grpc_usage import GrpcUsage
from epp.extproc.preamble import Preamble
from epp.extproc.usage import DocumentUsage, EventUsage, UsageReader
from epp.histogram import Histogram
from epp.metrics.tables import ITL
from epp.pb.ext_proc_pb2 import ProcessingRequest

STATUS, CONTENT_TYPE, CONTENT_ENCODING, GRPC_STATUS = ":status", "content-type", "content-encoding", "grpc-status"
GRPC = "application/grpc"
WATCHED = frozenset((STATUS, CONTENT_TYPE, CONTENT_ENCODING, GRPC_STATUS))


class Observer:
    """Observes one response. Owner: its exchange. Units: seconds of the exchange's clock."""

    def __init__(self, pick_id: int, began: float, *, streaming: bool) -> None:
        self.pick_id = pick_id
        self._began = self._last_piece = began
        self._outcome = Outcome(Cause.DISCONNECTED, streaming=streaming)
        self._usage: UsageReader | None = None
        self._preamble: Preamble | None = None

    @property
    def served_by(self) -> str | None:
        """Return the endpoint that answers; None if the proxy has not named it."""
        return self._outcome.served_by

    def headers(self, message: ProcessingRequest) -> None:
        """Note the status, the content type and the endpoint from the response headers."""
        outcome = self._outcome
        seen = messages.header_values(message.response_headers, WATCHED)
        status = seen.get(STATUS, "")
        outcome.status = int(status) if status.isdecimal() else None
        if outcome.status not in GOOD_STATUSES or seen.get(GRPC_STATUS, "0") != "0":
            outcome.errors.append(MODEL_SERVER_ERROR)
        content_type = seen.get(CONTENT_TYPE, "")
        events = "text/event-stream" in content_type
        outcome.streaming = outcome.streaming or events
        if message.HasField("metadata_context"):
            outcome.served_by = messages.served_in(message.metadata_context)
        if content_type.startswith(GRPC):
            self._usage = GrpcUsage()
        elif seen.get(CONTENT_ENCODING, "identity") == "identity":
            self._usage = EventUsage() if events else DocumentUsage()
            self._preamble = Preamble() if events else None

    def body(self, part: bytes, now: float) -> bool:
        """Note the next piece of the body; returns whether the answer begins in it."""
        outcome, begins = self._outcome, False
        outcome.response_bytes = (outcome.response_bytes or 0) + len(part)
        if part:
            if outcome.ttft_s is None:
                if self._preamble is None or self._preamble.ends_in(part):
                    outcome.ttft_s = now - self._began
                    begins = True
            elif outcome.streaming:
                if outcome.gaps is None:
                    outcome.gaps = Histogram(ITL.bounds)
                outcome.gaps.observe(now - self._last_piece)
            self._last_piece = now
        if self._usage is not None:
            self._usage.feed(part)
        return begins

    def trailers(self, message: ProcessingRequest) -> None:
        """Note the status of a gRPC response, which its trailers carry."""
        seen = messages.header_values(message.response_trailers, WATCHED)
        if seen.get(GRPC_STATUS, "0") != "0":
            self._outcome.errors.append(MODEL_SERVER_ERROR)

    def no_body(self) -> None:
        """Note that no body follows the headers."""
        self._outcome.response_bytes = 0

    def ended(self, cause: Cause, now: float) -> Outcome:
        """Return the outcome of the response, which has ended for ``cause``."""
        outcome = self._outcome
        if self._usage is not None:
            self._usage.end()
            outcome.usage = self._usage.usage
        outcome.cause = cause
        outcome.duration_s = now - self._began
        return outcome
