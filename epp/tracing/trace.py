"""The record of one traced request: references and times, but no prompts and no header values."""

from __future__ import annotations

from typing import NamedTuple

from epp.decision import Decision, Outcome, RequestLabels
from epp.tracing.context import TraceContext


class Run(NamedTuple):
    """One run of a plugin. Units: seconds; ``ended_s`` is on the requests' clock."""

    extension_point: str
    plugin_type: str
    plugin_name: str
    seconds: float
    ended_s: float


class Placed(NamedTuple):
    """How a request got its endpoint: a decision without its request."""

    began_s: float
    """When the candidates began to be scored."""
    ended_s: float
    candidates: tuple[str, ...]
    """The addresses of the scored candidates."""
    chosen: tuple[str, ...]
    scores: dict[str, tuple[float, list[float]]]
    totals: list[float]
    prompt_tokens: int
    considered: int
    """How many candidates there were before the filters."""


class Trace:
    """One traced request, from its receipt to its end.

    Owner: the event loop, until the trace is offered to the exporting thread; it does not change after that. Units:
    seconds on the requests' clock.
    """

    __slots__ = ("context", "ended_s", "error", "labels", "outcome", "parent", "placed", "read_s", "received_s", "runs")

    def __init__(self, context: TraceContext, parent: TraceContext | None, received_s: float, read_s: float) -> None:
        self.context = context
        """The ids of the span of the whole request; the engine's spans are its children."""
        self.parent = parent
        """The ids of the caller's span."""
        self.received_s = received_s
        self.read_s = read_s
        """When the body was complete."""
        self.ended_s = read_s
        self.labels = RequestLabels()
        self.runs: list[Run] = []
        self.placed: Placed | None = None
        self.error = ""
        """The code of the refusal, if the request was refused."""
        self.outcome: Outcome | None = None


def placed(decision: Decision, began_s: float, ended_s: float, considered: int) -> Placed:
    """Return what a trace keeps of ``decision``, which itself holds the prompt."""
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
