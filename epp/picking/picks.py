"""What becomes of picks: which endpoint answers, how they end, and who learns from that."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from epp.decision import Outcome
from epp.flowcontrol.admission import Admission
from epp.picking import decision_log
from epp.picking.prediction import observed
from epp.picking.profile import Profile
from epp.picking.request_telemetry import RequestTelemetry
from epp.pool.ledger import Ledger
from epp.pool.pool import Pool
from epp.served.router import ModelRouter
from epp.tracing.tracer import Tracer
from scorers.base import Observation, Prediction


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

    def use(self, profile: Profile, admission: Admission | None, models: ModelRouter) -> None:
        """Report the ends of picks to these, from the next one on."""
        self._admission = admission
        self._models = models
        self.observing = (*self._learners, profile.observed) if profile.observes else self._learners

    def answering(self, pick_id: int) -> None:
        """Note that the answer has begun."""
        self._ledger.answering(pick_id)

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
