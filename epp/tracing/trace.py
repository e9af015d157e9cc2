"""What is noted of one traced request: references and times, no prompts and no header values."""

from __future__ import annotations

from typing import NamedTuple

from epp.decision import Decision, Outcome, RequestLabels
from epp.tracing.context import TraceContext


class Run(NamedTuple):
    """One run of a plugin. Units: seconds; ``ended_s`` on the clock of the requests."""

    extension_point: str
    plugin_type: str
    plugin_name: str
    seconds: float
    ended_s: float


class Placed(NamedTuple):
    """How a request got its endpoint, as the decision says it without the request."""

    began_s: float
    """When its candidates were scored."""
    ended_s: float
    candidates: tuple[str, ...]
    """Addresses of those that were scored."""
    chosen: tuple[str, ...]
    scores: dict[str, tuple[float, list[float]]]
    totals: list[float]
    prompt_tokens: int
    considered: int
    """How many there were before the filters."""


class Trace:
    """Owner: the event loop, until it is offered to the exporting thread; nobody writes it then.

    Units: seconds on the clock of the requests.
    """

    __slots__ = ("context", "ended_s", "error", "labels", "outcome", "parent", "placed", "read_s", "received_s", "runs")

    def __init__(self, context: TraceContext, parent: TraceContext | None, received_s: float, read_s: float) -> None:
        self.context = context
        """Of the span that is the whole request; the engine's spans are its children."""
        self.parent = parent
        """The caller's span."""
        self.received_s = received_s
        self.read_s = read_s
        """When the body was there."""
        self.ended_s = read_s
        self.labels = RequestLabels()
        self.runs: list[Run] = []
        self.placed: Placed | None = None
        self.error = ""
        """Why it went nowhere: the code of the refusal."""
        self.outcome: Outcome | None = None


def placed(decision: Decision, began_s: float, ended_s: float, considered: int) -> Placed:
    """What a trace keeps of ``decision``, which holds the prompt."""
    totals = [0.0] * len(decision.candidates)
    for weight, column in decision.scores.values():
        totals = [total + weight * score for total, score in zip(totals, column, strict=True)]
    return Placed(
        began_s,
        ended_s,
        tuple(c.address for c in decision.candidates),
        tuple(c.address for c in decision.chosen),
        dict(decision.scores),
        totals,
        decision.request.prompt_tokens if decision.request is not None else 0,
        considered,
    )
