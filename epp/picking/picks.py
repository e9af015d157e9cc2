"""Follows picks to their ends: the endpoint that answers, the outcome, and the parts that learn from it."""

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
    """Callbacks for per-request metrics, which ``epp.metrics`` implements; each is O(1)."""

    def request_received(self, labels: RequestLabels, size_bytes: int) -> None:
        """Count a request whose body was parsed."""

    def decided(self, labels: RequestLabels, request: Request, candidate: Candidate, seconds: float) -> None:
        """Count a pick of ``candidate``; hashing, scoring, picking and recording took ``seconds``."""

    def refused(self, labels: RequestLabels, code: str) -> None:
        """Count a request that was refused with ``code``."""

    def plugin(self, extension_point: str, plugin_type: str, plugin_name: str) -> Timer:
        """Return the timer for the runs of one plugin."""

    def ended(self, labels: RequestLabels, outcome: Outcome) -> None:
        """Count the outcome of a request that has ended."""

    def request_processing(self, seconds: float) -> None:
        """Count the time spent on one request's request messages."""

    def response_processing(self, seconds: float) -> None:
        """Count the time spent on one request's response messages."""


class Picks:
    """All picks that the ledger holds, from the moment at which they are open. Owner: the event loop.

    Keeps nothing of a pick except its ticket in the ledger.
    """

    def __init__(
        self,
        pool: Pool,
        ledger: Ledger,
        telemetry: RequestTelemetry,
        tracer: Tracer | None,
        learners: Sequence[Callable[[Observation], None]],
    ) -> None:
        """Make the picks of one ledger.

        ``learners`` get the observation of every request whose response was seen, as the plugins that learn do.
        """
        self.served_elsewhere = 0
        """Requests that another endpoint than the one picked answered: a fallback, or the proxy's own choice."""
        self.not_renamed = 0
        """Responses that keep the engine's name of the model, because they are compressed."""
        self.reports_usage = False
        """Whether the proxy is sent anything computed from a response's usage."""
        self.on_unused: list[Callable[[int], object]] = []
        """Called with the id of each pick whose endpoint has not computed the prompt, before the pick is closed."""
        self.observing: tuple[Callable[[Observation], None], ...] = ()
        """All callbacks that learn from responses; without any, no prediction is kept."""
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
        """Note that the response has begun."""
        self._ledger.answering(pick_id)

    def keeps_name(self) -> None:
        """Count a response that keeps the engine's name of the model."""
        self.not_renamed += 1

    def left(self, pick_id: int, now: float) -> None:
        """Note that a request is over, and that the access log will report how it ended."""
        self._ledger.leave(pick_id, now)

    def served_by(self, pick_id: int, address: str, now: float) -> None:
        """Reassign a pick to the endpoint at ``address``, if the proxy reports early that another endpoint answers."""
        if self._ledger.move(pick_id, address, now):
            self.served_elsewhere += 1
            self._unused(pick_id)

    def ended(self, pick_id: int, outcome: Outcome) -> bool:
        """Uncount a pick and report its outcome; returns False if that has already happened.

        The end of a pick that was reconciled with its engine's counts is reported when it is known after all.
        """
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
        """Return whether another endpoint of the pool answered; an address outside the pool is an intermediary's."""
        return address is not None and not self._ledger.is_at(pick_id, address) and address in self._pool

    def _unused(self, pick_id: int) -> None:
        for listener in self.on_unused:
            listener(pick_id)

    def _observe(self, prediction: Prediction, outcome: Outcome) -> None:
        observation = observed(prediction, outcome)
        if observation is not None:
            for learn in self.observing:
                learn(observation)
