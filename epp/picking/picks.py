"""What becomes of picks: which endpoint answers, how they end, and who learns from that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from epp.decision import Outcome, RequestLabels, Usage
from epp.flowcontrol.admission import Admission
from epp.metrics.gauges import Reading
from epp.picking import decision_log
from epp.picking.prediction import observed
from epp.picking.profile import Profile, Timer
from epp.picking.usage_reporter import Report
from epp.pool.ledger import Ledger
from epp.pool.pool import Pool
from epp.served.router import ModelRouter
from epp.tracing.tracer import Tracer
from scorers.base import Candidate, Observation, Prediction, Request


class RequestTelemetry(Protocol):
    """What is reported of every request: ``epp.metrics``. All O(1)."""

    def request_received(self, labels: RequestLabels, size_bytes: int) -> None:
        """A request was understood."""

    def decided(self, labels: RequestLabels, request: Request, candidate: Candidate, seconds: float) -> None:
        """It goes to ``candidate``; hashing, scoring, picking and recording took ``seconds``."""

    def refused(self, labels: RequestLabels, code: str) -> None:
        """It goes nowhere."""

    def plugin(self, extension_point: str, plugin_type: str, plugin_name: str) -> Timer:
        """Who counts the runs of one plugin."""

    def ended(self, labels: RequestLabels, outcome: Outcome) -> None:
        """It has ended."""

    def request_processing(self, seconds: float) -> None:
        """Time spent on one request's request messages."""

    def response_processing(self, seconds: float) -> None:
        """Time spent on one request's response messages."""


class Picks:
    """Every pick that the ledger holds, from the moment at which it is open.

    Owner: the event loop. Keeps nothing of a pick but what the ledger holds for it.
    """

    def __init__(
        self,
        pool: Pool,
        ledger: Ledger,
        telemetry: RequestTelemetry,
        tracer: Tracer | None,
        learners: Sequence[Callable[[Observation], None]],
    ) -> None:
        """``learners`` are given the observation of every request whose response was seen, as plugins that want it
        are."""
        self.served_elsewhere = 0
        """Requests that another endpoint answered than the one picked: a fallback, or the proxy's own choice."""
        self.not_renamed = 0
        """Responses that keep the engine's name of the model, for they are compressed."""
        self.reports_usage = False
        """Whether the proxy is sent anything computed from a response's usage."""
        self.on_unused: list[Callable[[int], object]] = []
        """Called with the id of every pick whose prompt its endpoint has not computed, before the pick is closed."""
        self.observing: tuple[Callable[[Observation], None], ...] = ()
        """Everybody who learns from responses; without any, nothing has to be predicted."""
        self._pool = pool
        self._ledger = ledger
        self._telemetry = telemetry
        self._tracer = tracer
        self._learners = tuple(learners)
        self._admission: Admission | None = None
        self._models: ModelRouter | None = None
        self._profile: Profile | None = None

    def use(self, profile: Profile, admission: Admission | None, models: ModelRouter) -> None:
        """Report the ends of picks to these, from the next one on."""
        self._admission = admission
        self._models = models
        self._profile = profile
        self.reports_usage = bool(profile.reporters)
        self.observing = (*self._learners, profile.observed) if profile.observes else self._learners

    def reports(self, usage: Usage) -> list[Report]:
        """Return what the proxy is sent about a response with this ``usage``."""
        return [] if self._profile is None else self._profile.reports(usage)

    def readings(self) -> Iterator[Reading]:
        """Return the counts of responses that went another way, for ``Telemetry.gauge_source``."""
        yield Reading(
            "tierwise_served_elsewhere",
            "Requests that another endpoint answered than the one picked.",
            (),
            [((), self.served_elsewhere)],
            counter=True,
        )
        yield Reading(
            "tierwise_compressed_responses_not_renamed",
            "Responses to rewritten requests that keep the engine's name of the model, for they are compressed.",
            (),
            [((), self.not_renamed)],
            counter=True,
        )

    def answering(self, pick_id: int) -> None:
        """Note that the answer has begun."""
        self._ledger.answering(pick_id)

    def keeps_name(self) -> None:
        """Count a response that keeps the engine's name of the model."""
        self.not_renamed += 1

    def left(self, pick_id: int, now: float) -> None:
        """Note that a request is over, and that the access log is to say how it ended."""
        self._ledger.leave(pick_id, now)

    def served_by(self, pick_id: int, address: str, now: float) -> None:
        """Count a pick at ``address`` from now on, if the proxy says early that another endpoint answers."""
        if self._ledger.move(pick_id, address, now):
            self.served_elsewhere += 1
            self._unused(pick_id)

    def ended(self, pick_id: int, outcome: Outcome) -> bool:
        """Uncount a pick and report its outcome; False when that has already happened. Of a pick that was taken back
        on its engine's word, the real end is reported, too."""
        if outcome.failed or self._is_elsewhere(pick_id, outcome.served_by):
            self._unused(pick_id)
        ticket = self._ledger.close(pick_id, outcome.cause) or self._ledger.late(pick_id)
        if ticket is None:
            return False
        if outcome.served_by not in (None, ticket.address):
            self.served_elsewhere += 1
        labels = ticket.labels
        self._telemetry.ended(labels, outcome)
        if self._models is not None:
            self._models.ended(ticket.address, labels.target_model_name, outcome.status)
        if self._admission is not None:
            self._admission.ended(pick_id, labels, outcome)
        if self._tracer is not None:
            self._tracer.ended(pick_id, outcome)
        if ticket.prediction is not None and outcome.served_by in (None, ticket.address):
            self._observe(ticket.prediction, outcome)
        decision_log.ended(pick_id, ticket.address, outcome)
        return True

    def _is_elsewhere(self, pick_id: int, address: str | None) -> bool:
        """Whether another endpoint answered; not that something between the proxy and the endpoint did."""
        return address is not None and not self._ledger.is_at(pick_id, address) and address in self._pool

    def _unused(self, pick_id: int) -> None:
        for listener in self.on_unused:
            listener(pick_id)

    def _observe(self, prediction: Prediction, outcome: Outcome) -> None:
        observation = observed(prediction, outcome)
        if observation is not None:
            for learn in self.observing:
                learn(observation)
