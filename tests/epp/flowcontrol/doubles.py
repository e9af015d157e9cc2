"""A controller over a pool whose saturation a test sets, and requests in one line each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from epp.decision import RequestHead, RequestLabels
from epp.errors import EppError
from epp.flowcontrol.admission import Arrival
from epp.flowcontrol.controller import FlowController
from epp.flowcontrol.queue import QueueEntry, QueueOutcome
from epp.flowcontrol.saturation import Gauge, SaturationDetector
from epp.flowcontrol.settings import FlowSettings
from scorers.base import Candidate, NoParameters, Request, Slot


def arrival(
    priority: int = 0, flow: str = "a", size_bytes: int = 10, received_s: float = 0.0, tokens: int = 1, **headers: str
) -> Arrival:
    """Make a request. Header names have underscores instead of hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = Request("r", "m", "m", headers=named, priority=priority, fairness_id=flow, prompt_tokens=tokens)
    request.received_s = received_s
    return Arrival(RequestHead(named), request, RequestLabels("m", "m", flow, priority), size_bytes)


class Room(SaturationDetector[NoParameters]):
    """A detector with a limit of requests in flight on all endpoints together; the test sets their number."""

    type_name = "room"

    def __init__(self, places: int = 0) -> None:
        super().__init__()
        self.places = places
        self.taken = 0
        self.level: float | None = None
        """The saturation to report instead, if the test sets it."""

    def saturation(self, candidates: Sequence[Candidate]) -> float:
        if self.level is not None:
            return self.level
        return 1.0 if self.taken >= self.places else self.taken / self.places

    def keep(self, request: Request, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        return candidates


@dataclass
class Seen:
    """A queue listener that keeps its events."""

    outcomes: list[QueueOutcome] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    held: Counter[RequestLabels] = field(default_factory=Counter)
    held_bytes: int = 0

    def enqueued(self, labels: RequestLabels, size_bytes: int) -> None:
        self.held[labels] += 1
        self.held_bytes += size_bytes

    def left(self, labels: RequestLabels, size_bytes: int) -> None:
        self.held[labels] -= 1
        self.held_bytes -= size_bytes

    def finished(self, labels: RequestLabels, outcome: QueueOutcome, waited_s: float) -> None:
        self.outcomes.append(outcome)
        self.waits.append(waited_s)


class Stage:
    """A controller, its clock and its pool, and the outcome of every request by name."""

    def __init__(self, settings: FlowSettings | None = None, *, places: int = 0, endpoints: int = 1) -> None:
        self.now = 0.0
        self.detector = settings.detector if settings and isinstance(settings.detector, Room) else Room()
        self.detector.places = places
        self.endpoints = endpoints
        self.seen = Seen()
        self.ended: dict[str, EppError | None] = {}
        """The errors by name of the request; None for a dispatched one."""
        self.order: list[str] = []
        self.waits: dict[str, QueueEntry] = {}
        gauge = Gauge(self.detector, self.candidates)
        self.controller = FlowController(settings or self.settings(), gauge, self.seen, lambda: self.now)

    def settings(self, **more: object) -> FlowSettings:
        return FlowSettings(detector=self.detector, **more)  # type: ignore[arg-type]

    def candidates(self) -> tuple[Candidate, ...]:
        return tuple([Candidate(Slot(n), f"10.0.0.{n}:80") for n in range(self.endpoints)])

    def ask(self, name: str, wanted: Arrival) -> bool:
        """Admit a request; return whether it waits. Raises: EppError."""

        def resume(error: EppError | None) -> None:
            assert name not in self.ended, "resumed twice"
            self.ended[name] = error
            del self.waits[name]
            if error is None:
                self._went(name)

        wait = self.controller.admit(wanted, resume)
        if wait is None:
            self.ended[name] = None
            self._went(name)
            return False
        self.waits[name] = wait
        return True

    def fill(self, *names: str, **more: object) -> None:
        """Admit requests that must wait."""
        for name in names:
            assert self.ask(name, arrival(**more))  # type: ignore[arg-type]

    def free(self, places: int = 1) -> list[str]:
        """Free capacity for ``places`` requests; return the dispatched ones, in order."""
        before = len(self.order)
        self.detector.places = self.detector.taken + places
        while self.controller.dispatch():
            pass
        return self.order[before:]

    def _went(self, name: str) -> None:
        self.order.append(name)
        self.detector.taken += 1
