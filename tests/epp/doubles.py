"""Small real implementations of the director's seams, and the proxy's messages in one line each."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from typing_extensions import override

from epp.decision import UNLABELLED, Cause, Outcome, RequestLabels
from epp.errors import EppError
from epp.flowcontrol.admission import Admission, Arrival, Resume
from epp.parsers import OpenAIParser
from epp.pb.core_pb2 import HeaderMap
from epp.pb.ext_proc_pb2 import ProcessingRequest, ProcessingResponse
from epp.pb.processing_mode_pb2 import ProcessingMode
from epp.picking.director import Director
from epp.picking.profile import Profile
from epp.picking.request_steps import RequestSteps
from epp.pool.ledger import Ledger, Ticket
from epp.pool.pool import Endpoint, EngineMetrics, Pool
from epp.tokens.step import TokenStep
from scorers.base import Candidate, Filter, NoParameters, Observation, Prediction, Request, Slot
from scorers.load.queue import QueueScorer
from scorers.pickers import MaxScorePicker

DESTINATION = "x-gateway-destination-endpoint"
FULL_DUPLEX = ProcessingMode.FULL_DUPLEX_STREAMED
BUFFERED = ProcessingMode.BUFFERED
STREAMED = ProcessingMode.STREAMED
NONE = ProcessingMode.NONE


def candidate(slot: int, *, address: str = "") -> Candidate:
    return Candidate(Slot(slot), address or f"10.0.0.{slot}:8000")


class RecordingLedger(Ledger):
    """A ledger that remembers every end, in order."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        self.picks: list[int] = []
        self.closed: list[tuple[int, Cause]] = []

    @override
    def open(
        self,
        candidate: Candidate,
        uncached_tokens: int,
        now: float,
        labels: RequestLabels = UNLABELLED,
        prediction: Prediction | None = None,
    ) -> int:
        pick_id = super().open(candidate, uncached_tokens, now, labels, prediction)
        self.picks.append(uncached_tokens)
        return pick_id

    @override
    def close(self, pick_id: int, cause: Cause) -> Ticket | None:
        ticket = super().close(pick_id, cause)
        if ticket is not None:
            self.closed.append((pick_id, cause))
        return ticket


@dataclass
class Telemetry:
    """Records everything that was reported."""

    received: list[tuple[RequestLabels, int]] = field(default_factory=list)
    decisions: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    plugins: list[tuple[str, str, str]] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    request_phases: int = 0
    response_phases: int = 0

    def request_received(self, labels: RequestLabels, size_bytes: int) -> None:
        self.received.append((labels, size_bytes))

    def decided(self, labels: RequestLabels, request: Request, candidate: Candidate, seconds: float) -> None:
        self.decisions.append(candidate.address)

    def refused(self, labels: RequestLabels, code: str) -> None:
        self.refusals.append(code)

    def plugin(self, extension_point: str, plugin_type: str, plugin_name: str) -> Callable[[float], None]:
        return lambda seconds: self.plugins.append((extension_point, plugin_type, plugin_name))

    def ended(self, labels: RequestLabels, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def request_processing(self, seconds: float) -> None:
        self.request_phases += 1

    def response_processing(self, seconds: float) -> None:
        self.response_phases += 1


class Only(Filter[NoParameters]):
    """A filter that keeps one address, or raises."""

    type_name = "only"

    def __init__(self, address: str | None) -> None:
        super().__init__()
        self.address = address

    @override
    def keep(self, request: Request, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        if self.address is None:
            raise ZeroDivisionError("in the filter")
        return [c for c in candidates if c.address == self.address]


class Held:
    """A request that waits at a ``Gate``."""

    def __init__(self, gate: Gate, resume: Resume) -> None:
        self.gate = gate
        self.resume = resume

    def patience_s(self) -> float:
        return 61.0

    def cancel(self) -> None:
        if self in self.gate.waiting:
            self.gate.waiting.remove(self)
            self.gate.cancelled += 1


class Gate:
    """An admission that has every request wait until the test resumes it; while ``open``, it admits all."""

    def __init__(self) -> None:
        self.open = False
        self.waiting: list[Held] = []
        self.cancelled = 0
        self.ends: list[Outcome] = []
        self.flights: dict[int, Resume] = {}
        """The callback that ends each request in flight that may be ended."""

    def admit(self, arrival: Arrival, resume: Resume) -> Held | None:
        if self.open:
            return None
        held = Held(self, resume)
        self.waiting.append(held)
        return held

    def patience_s(self) -> float:
        return 61.0

    def placed(self, arrival: Arrival, pick_id: int, resume: Resume) -> None:
        self.flights[pick_id] = resume

    def ended(self, pick_id: int, labels: RequestLabels, outcome: Outcome) -> None:
        self.flights.pop(pick_id, None)
        self.ends.append(outcome)

    def settle(self, error: EppError | None = None) -> None:
        """Resume the request that has waited longest."""
        self.waiting.pop(0).resume(error)


class World:
    """A director over endpoints of which the first has no queue and each other one a longer one."""

    def __init__(
        self,
        endpoints: int = 2,
        profile: Profile | None = None,
        admission: Admission | None = None,
        learners: Sequence[Callable[[Observation], None]] = (),
        tokens: TokenStep | None = None,
    ) -> None:
        self.pool = Pool()
        self.ledger = RecordingLedger(self.pool)
        self.telemetry = Telemetry()
        self.pool.replace([Endpoint(f"10.0.0.{number}:8000") for number in range(1, endpoints + 1)])
        for c in self.pool.candidates():
            self.pool.observe(c.slot, EngineMetrics(waiting=1000 * c.slot), began_at=0)
        profile = profile or Profile([], [], [(QueueScorer(), 1.0)], MaxScorePicker())
        self.director = Director(
            RequestSteps(OpenAIParser(), profile, admission, tokens=tokens),
            self.pool,
            self.ledger,
            self.telemetry,
            learners=learners,
        )


def completion(prompt: str = "hello", **more: object) -> bytes:
    return json.dumps({"model": "m", "prompt": prompt, **more}).encode()


def request_headers(
    *,
    end_of_stream: bool = False,
    modes: tuple[int, int] | None = (FULL_DUPLEX, FULL_DUPLEX),
    subset: object = None,
    **headers: str,
) -> ProcessingRequest:
    """Return request headers, whose names are given with underscores; ``modes`` are of request and response body."""
    message = ProcessingRequest()
    message.request_headers.end_of_stream = end_of_stream
    named = {":method": "POST", ":path": "/v1/completions"} | {k.replace("_", "-"): v for k, v in headers.items()}
    add_headers(message.request_headers.headers, named)
    if modes is not None:
        message.protocol_config.SetInParent()
        message.protocol_config.request_body_mode, message.protocol_config.response_body_mode = modes  # type: ignore[assignment]
    set_subset(message, subset)
    return message


def request_body(body: bytes = b"", *, end_of_stream: bool = True, subset: object = None) -> ProcessingRequest:
    message = ProcessingRequest(request_body={"body": body, "end_of_stream": end_of_stream})
    set_subset(message, subset)
    return message


def request_trailers() -> ProcessingRequest:
    return ProcessingRequest(request_trailers={})


def response_headers(status: int = 200, *, end_of_stream: bool = False, **headers: str) -> ProcessingRequest:
    message = ProcessingRequest()
    message.response_headers.end_of_stream = end_of_stream
    named = {":status": str(status), "content-type": "application/json"}
    add_headers(message.response_headers.headers, named | {k.replace("_", "-"): v for k, v in headers.items()})
    return message


def response_body(body: bytes = b"", *, end_of_stream: bool = True) -> ProcessingRequest:
    return ProcessingRequest(response_body={"body": body, "end_of_stream": end_of_stream})


def response_trailers() -> ProcessingRequest:
    return ProcessingRequest(response_trailers={})


def add_headers(header_map: HeaderMap, headers: dict[str, str]) -> None:
    for name, value in headers.items():
        header_map.headers.add(key=name, raw_value=value.encode())


def set_subset(message: ProcessingRequest, subset: object) -> None:
    if subset is not None:
        hint = message.metadata_context.filter_metadata["envoy.lb.subset_hint"]
        hint.update({"x-gateway-destination-endpoint-subset": subset})


def read(answers: Sequence[bytes]) -> list[ProcessingResponse]:
    return [ProcessingResponse.FromString(answer) for answer in answers]


def kinds(answers: Sequence[bytes]) -> list[str | None]:
    return [answer.WhichOneof("response") for answer in read(answers)]


def destination_of(answer: ProcessingResponse) -> str:
    """Return the destination in the metadata; an answer that can set headers has it in the header, too."""
    metadata = answer.dynamic_metadata["envoy.lb"][DESTINATION]
    kind = answer.WhichOneof("response")
    if kind != "request_trailers":
        headers = getattr(answer, kind).response.header_mutation.set_headers
        assert {h.header.key: h.header.raw_value.decode() for h in headers}[DESTINATION] == metadata
    return str(metadata)


def forwarded(answers: Sequence[ProcessingResponse], side: str = "request_body") -> list[tuple[bytes, bool]]:
    """Return the pieces of a body, and whether each ends the stream."""
    pieces = [a for a in answers if a.WhichOneof("response") == side]
    streamed = [getattr(piece, side).response.body_mutation.streamed_response for piece in pieces]
    return [(piece.body, piece.end_of_stream) for piece in streamed]
