"""From a request to a decision; ``epp.picking.picks`` follows the pick from there to its end.

    read: parse ─► Arrival
    admit: tokenized if need be (``epp.tokens``), then now, later (``epp.flowcontrol.admission``), or never
    place: candidates (pool, subset) ─► schedule ─► ledger.open ─► producers and scorers learn ─► Decision

``place`` is one call, so that no other request sees the same numbers before this one is counted.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from msgspec import structs

from epp.client import REQUEST_ID
from epp.decision import UNLABELLED, Decision, RequestHead, RequestLabels
from epp.errors import EppError
from epp.flowcontrol.admission import Arrival, Resume, Wait
from epp.picking import decision_header, decision_log, encoded_body
from epp.picking.picks import Picks, RequestTelemetry
from epp.picking.prediction import predicted, uncached_tokens
from epp.picking.request import fairness_id_of, request_of
from epp.picking.request_steps import RequestSteps
from epp.pool.candidates import allowed, fresh_first, serving
from epp.pool.ledger import Ledger
from epp.pool.pool import Pool
from epp.served.catalog import Catalog
from epp.served.listing import ModelAnswer
from epp.served.router import ModelRouter
from epp.tracing.trace import Trace
from epp.tracing.tracer import Tracer
from scorers.base import Candidate, Observation

UNTRACED = ("", None)


class Director:
    """Decides where requests go. Owner: the event loop.

    Keeps nothing of a request except its ticket in the ledger.
    """

    def __init__(
        self,
        steps: RequestSteps,
        pool: Pool,
        ledger: Ledger,
        telemetry: RequestTelemetry,
        *,
        tracer: Tracer | None = None,
        clock: Callable[[], float] = time.monotonic,
        choose: Callable[[Sequence[Candidate]], Candidate] = random.choice,
        learners: Sequence[Callable[[Observation], None]] = (),
        tells_decisions: bool = False,
    ) -> None:
        """Make a director that handles requests by ``steps``.

        ``learners`` learn from responses (``epp.picking.picks``); ``tells_decisions`` answers clients that ask for the
        reasons of their picks (``epp.picking.decision_header``).
        """
        self.telemetry = telemetry
        self.picks = Picks(pool, ledger, telemetry, tracer, learners)
        self._pool = pool
        self._ledger = ledger
        self._tracer = tracer
        self._clock = clock
        self._choose = choose
        self._tells = tells_decisions
        self.use(steps)

    def use(self, steps: RequestSteps) -> None:
        """Handle every request by ``steps``, from the next one on."""
        self._models = steps.models or ModelRouter(Catalog(self._pool, lambda _: None), None)
        self._admission = steps.admission
        self.tokens = steps.tokens
        """Writes token ids into requests before they are admitted; None where no plugin reads them."""
        if self.tokens is not None:
            self.tokens.admission = steps.admission
        self._objectives = steps.objectives
        self._parser = steps.parser
        self._profile = steps.profile
        self.picks.use(steps.profile, steps.admission, self._models)
        timers = self.telemetry.plugin
        self._profile.time_with(timers if self._tracer is None else self._tracer.timing(timers))

    def read(self, head: RequestHead, body: bytes) -> Arrival:
        """Parse a request with a body, and count it. Raises: BadRequest."""
        traceparent, trace = self._begun(head)
        try:
            arrival = self.parse(head, body)
        except EppError as error:
            self.refused_unread(head, error, trace)
            raise
        if traceparent:
            arrival = structs.replace(arrival, traceparent=traceparent, trace=trace)
        self.telemetry.request_received(arrival.labels, len(body))
        return arrival

    def parse(self, head: RequestHead, body: bytes) -> Arrival:
        """Parse a request as ``read`` does, without counting it. Raises: BadRequest."""
        parsed = self._models.understood(encoded_body.parse(self._parser, head, body), body)
        request = request_of(head, parsed, self._objectives, self._clock())
        labels = RequestLabels(request.model, request.target_model, request.fairness_id, request.priority)
        return Arrival(head, request, labels, len(body), parsed.body)

    def candidates(self, head: RequestHead, model: str = "") -> Sequence[Candidate]:
        """Return the candidates for a request for ``model``. Raises: ModelNotFound, NoEndpoints."""
        pool = self._pool
        candidates = allowed(pool.candidates(), head.subset)
        # Before freshness is considered, so that ``serving`` sees the endpoints of this model alone.
        candidates = self._models.keep(model, candidates)
        return candidates if pool.all_fresh else serving(candidates)

    def admit(self, arrival: Arrival, body: bytes, resume: Resume) -> Wait | None:
        """Return the wait of ``arrival``, whose body the client sent as ``body``; None if it may be placed now.

        ``resume`` is called once when the wait ends, unless the wait is cancelled. Raises: EppError for a refusal.
        """
        try:
            self._models.check(arrival.request.target_model)
            if self.tokens is not None:
                return self.tokens.admit(arrival, body, resume)
            return None if self._admission is None else self._admission.admit(arrival, resume)
        except EppError as error:
            self.refused(arrival, error)
            raise

    def place(self, arrival: Arrival, resume: Resume | None = None, *, seen: bool = True) -> Decision:
        """Pick an endpoint for ``arrival``, and count it there.

        With ``resume``, the request may be ended later in favor of others. Unless its response will be ``seen``,
        nothing is kept to learn from. Raises: NoEndpoints, Saturated, with nothing counted.
        """
        try:
            decision = self._schedule(arrival, seen=seen)
        except EppError as error:
            self.refused(arrival, error)
            raise
        if resume is not None and self._admission is not None:
            self._admission.placed(arrival, decision.pick_id, resume)
        return decision

    def refused(self, arrival: Arrival, error: EppError) -> None:
        """Count the refusal of ``arrival``."""
        self._refused(arrival.labels, arrival.trace, error)
        decision_log.refused(arrival.request.id, error)

    def refused_unread(self, head: RequestHead | None, error: EppError, trace: Trace | None = None) -> None:
        """Count a refusal that happened before the body was parsed."""
        self._refused(UNLABELLED, trace, error)
        decision_log.refused(head.headers.get(REQUEST_ID, "") if head is not None else "", error)

    def decide(self, head: RequestHead, body: bytes) -> Decision:
        """Read and place a request at once, whatever the load, for a caller that cannot wait."""
        return self.place(self.read(head, body))

    def served_models(self) -> Sequence[str]:
        """Return the models that the endpoints list, without adapters."""
        return self._models.catalog.base_names()

    def decide_bodiless(self, head: RequestHead) -> Decision | ModelAnswer:
        """Pick a random endpoint that the subset allows, since a request without a body has nothing to score.

        A request for the list of models is answered instead. Raises: NoEndpoints, ModelNotFound.
        """
        labels = RequestLabels(fairness_id=fairness_id_of(head))
        traceparent, trace = self._begun(head)
        self.telemetry.request_received(labels, 0)
        try:
            if (answer := self._models.answer(head, allowed(self._pool.candidates(), head.subset))) is not None:
                return answer
            candidates = self.candidates(head)
        except EppError as error:
            self._refused(labels, trace, error)
            decision_log.refused(head.headers.get(REQUEST_ID, ""), error)
            raise
        chosen, now = self._choose(candidates), self._clock()
        pick_id = self._ledger.open(chosen, 0, now, labels)
        decision_log.picked_unscored(pick_id, head, chosen)
        decision = Decision(pick_id=pick_id, chosen=(chosen,), labels=labels, traceparent=traceparent)
        if self._tracer is not None and trace is not None:
            self._tracer.placed(trace, decision, now, len(candidates))
        return decision

    def _begun(self, head: RequestHead) -> tuple[str, Trace | None]:
        """Return the trace header for the engine, and the trace; empty and None for a request without one."""
        return UNTRACED if self._tracer is None else self._tracer.begin(head, self._clock())

    def _refused(self, labels: RequestLabels, trace: Trace | None, error: EppError) -> None:
        self.telemetry.refused(labels, error.code)
        if self._tracer is not None:
            self._tracer.refused(trace, labels, error)

    def _schedule(self, arrival: Arrival, *, seen: bool) -> Decision:
        request, labels, tracer = arrival.request, arrival.labels, self._tracer
        if tracer is not None:
            tracer.placing(arrival.trace)
        began = self._clock()
        candidates = self.candidates(arrival.head, request.target_model)
        schedule = self._profile.schedule(request, candidates)
        chosen = schedule.chosen[0]
        reasons = decision_header.answer(self._profile, request, schedule) if self._tells else {}
        now = self._clock()
        if seen and self.picks.observing:
            prediction = predicted(request, chosen, now - (arrival.head.received_s or now))
            pick_id = self._ledger.open(chosen, prediction.uncached_tokens, now, labels, prediction)
        else:
            pick_id = self._ledger.open(chosen, uncached_tokens(request, chosen), now, labels)
        request.pick_id, request.picked_s = pick_id, now
        self._profile.picked(request, chosen)
        seconds = self._clock() - began
        self.telemetry.decided(labels, request, chosen, seconds)
        decision_log.picked(pick_id, request, schedule, seconds)
        decision = Decision(
            pick_id=pick_id,
            chosen=schedule.chosen if self._pool.all_fresh else fresh_first(schedule.chosen),
            labels=labels,
            request=request,
            body=arrival.body,
            scores=schedule.scores,
            candidates=schedule.candidates,
            response_headers=self._profile.response_headers(request, chosen) | reasons,
            traceparent=arrival.traceparent,
            retried_at=self._models.retried_at(request.target_model, schedule.chosen, candidates),
        )
        if tracer is not None and arrival.trace is not None:
            tracer.placed(arrival.trace, decision, began, len(candidates))
        return decision
