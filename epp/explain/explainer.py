"""Runs a request through the director and the profile without any effect, and records the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf

import msgspec

from epp.config.plan import Plan
from epp.decision import RequestHead
from epp.errors import EppError, NoEndpoints
from epp.explain.explanation import MAX_NAME, Asked, Considered, Detail, Explanation, FilterVerdict, Part, Refusal
from epp.explain.trial import Trial, rehearse, undrawn
from epp.flowcontrol.admission import Arrival
from epp.picking.decision_log import modes_by_tier, tokens_by_tier
from epp.picking.director import Director
from epp.picking.reason import why
from epp.pool.candidates import allowed
from epp.pool.pool import Pool
from epp.tokens.model.answer import Answer
from epp.tokens.step import written
from scorers.base import Candidate, Request, Silence
from scorers.labels.served_model_filter import ServedModelFilter


class Explainer:
    """Explains requests. Owner: the event loop; a call is one step, as a decision is."""

    def __init__(self, director: Director, pool: Pool, plan: Callable[[], Plan]) -> None:
        """``plan`` returns the plan in use."""
        self._director = director
        self._pool = pool
        self._plan = plan

    async def token_ids(self, head: RequestHead, body: bytes) -> Answer | None:
        """Return the token ids for ``explain``, obtained as for a served request; None if no plugin needs them."""
        step = self._director.tokens
        if step is None:
            return None
        try:
            return await step.tokenize(self._understood(head, body), body)
        except EppError:
            return None

    def with_served_model(self, body: bytes) -> bytes:
        """Return ``body`` with a model that an endpoint lists, or with any name while none does; a body that is no
        JSON object stays as it is."""
        try:
            fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return body
        name = next(iter(self._director.served_models()), "default")
        return msgspec.json.encode({"model": name, **fields})

    def explain(self, head: RequestHead, body: bytes, token_ids: Answer | None = None) -> Explanation:
        """Return where a request would go now, and why, without changing any state."""
        plan = self._plan()
        try:
            request = self._understood(head, body).request
        except EppError as error:
            return Explanation(reason=refused(error), refusal=refusal_of(error))
        known = written(request, token_ids) if token_ids is not None else None
        asked = Asked(
            path=head.path[:MAX_NAME],
            model=request.model[:MAX_NAME],
            target_model=request.target_model[:MAX_NAME],
            prompts=len(request.prompts),
            prompt_tokens=request.prompt_tokens,
            streaming=request.streaming,
            priority=request.priority,
            token_ids=known,
        )
        everyone = self._pool.candidates()
        try:
            candidates = self._director.candidates(head, request.target_model)
        except EppError as error:
            outside = tuple(
                considered(candidate, request, reason)
                for candidate, reason in left_out(everyone, (), head.subset, plan.served, request)
            )
            return Explanation(reason=refused(error), refusal=refusal_of(error), request=asked, candidates=outside)
        trial = rehearse(plan.profile, request, candidates)
        return explanation(
            asked, request, trial, left_out(everyone, candidates, head.subset, plan.served, request), plan
        )

    def _understood(self, head: RequestHead, body: bytes) -> Arrival:
        rewrites = self._plan().rewrites
        with rewrites.uncounted(), undrawn([rewrites, rewrites.resources]):
            return self._director.parse(head, body)


def refused(error: EppError) -> str:
    """Return the refusal as a sentence."""
    return f"The request is refused: {str(error).removesuffix('.')}."


SILENT = {Silence.LATE: "stale metrics", Silence.UNREAD: "never read", Silence.GONE: "out of reach"}


def left_out(
    everyone: Sequence[Candidate],
    candidates: Sequence[Candidate],
    subset: frozenset[str] | None,
    served: ServedModelFilter | None,
    request: Request,
) -> list[tuple[Candidate, str]]:
    """Return the endpoints of ``everyone`` that are not candidates, and why."""
    taken = {candidate.slot for candidate in candidates}
    try:
        in_subset = {candidate.slot for candidate in allowed(everyone, subset)}
    except NoEndpoints:
        in_subset = set()
    serving = None if served is None else served.serving(request.target_model)

    def reason(candidate: Candidate) -> str:
        if candidate.slot not in in_subset:
            return "subset"
        if served is not None and serving is not None and candidate.slot not in serving:
            return served.name
        return SILENT[candidate.silence]

    return [(candidate, reason(candidate)) for candidate in everyone if candidate.slot not in taken]


def explanation(
    asked: Asked, request: Request, trial: Trial, excluded: Sequence[tuple[Candidate, str]], plan: Plan
) -> Explanation:
    """Describe ``trial`` in words and numbers."""
    rows = []
    schedule = trial.schedule
    scored: list[Considered] = []
    if schedule is not None:
        places = {candidate.slot: place for place, candidate in enumerate(schedule.chosen, 1)}
        for i, candidate in enumerate(schedule.candidates):
            scores = {
                name: Part(column[i], weight, weight * column[i]) for name, (weight, column) in schedule.scores.items()
            }
            place = places.get(candidate.slot)
            details = {name: Detail(said[i].text, said[i].numbers) for name, said in trial.details.items()}
            scored.append(considered(candidate, request, None, scores, schedule.totals[i], place, details))
        scored.sort(key=lambda row: (row.pick or inf, -(row.total or 0.0)))
        rows += scored
    for narrowing in trial.narrowings:
        rows += [considered(candidate, request, narrowing.name) for candidate in narrowing.dropped]
    rows += [considered(candidate, request, reason) for candidate, reason in excluded]
    picker = plan.profile.picker
    if schedule is None:
        assert trial.refusal is not None  # noqa: S101 - a trial has a schedule or a refusal
        dropping = next((n.name for n in reversed(trial.narrowings) if n.dropped), "a filter")
        reason = f"The request is refused: {dropping} drops the last of the candidates."
    else:
        first = next(i for i, candidate in enumerate(schedule.candidates) if candidate.slot == schedule.chosen[0].slot)
        reason = why(schedule, picker, [said[first] for said in trial.details.values()])
    return Explanation(
        reason=reason,
        pick=None if schedule is None else schedule.chosen[0].address,
        fallbacks=() if schedule is None else tuple(c.address for c in schedule.chosen[1:]),
        refusal=None if trial.refusal is None else refusal_of(trial.refusal),
        request=asked,
        candidates=tuple(rows),
        filters=tuple(
            FilterVerdict(n.name, n.type_name, n.seen, n.seen - len(n.dropped), tuple(c.address for c in n.dropped))
            for n in trial.narrowings
        ),
        picker=picker.name,
        failed_plugins=trial.failed,
    )


def considered(
    candidate: Candidate,
    request: Request,
    dropped_by: str | None,
    scores: Mapping[str, Part] | None = None,
    total: float | None = None,
    pick: int | None = None,
    details: Mapping[str, Detail] | None = None,
) -> Considered:
    """Return the row of one endpoint."""
    return Considered(
        address=candidate.address,
        name=candidate.name,
        waiting=candidate.waiting,
        running=candidate.running,
        kv_usage=candidate.kv_usage,
        in_flight=candidate.in_flight,
        in_flight_tokens=candidate.in_flight_tokens,
        fresh=candidate.fresh,
        dropped_by=dropped_by,
        tokens={name: cached.tokens.get(candidate.slot, 0) for name, cached in request.cached.items()},
        tokens_by_tier=tokens_by_tier(request, candidate),
        modes_by_tier=modes_by_tier(request, candidate),
        scores=scores or {},
        total=total,
        pick=pick,
        details=details or {},
    )


def refusal_of(error: EppError) -> Refusal:
    """Return the refusal that a client would get."""
    return Refusal(error.http_status, error.code, str(error)[:MAX_NAME])
