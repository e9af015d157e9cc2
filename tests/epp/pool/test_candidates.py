"""The endpoints that a request may be placed at while some have an outage."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.config.wiring.build import plan_from
from epp.decision import Cause, RequestHead
from epp.pool.candidates import fresh_first, serving
from epp.pool.pool import Endpoint, EngineMetrics
from epp.server.core import Core
from epp.server.settings import Settings
from scorers.base import Candidate, Request, Scorer, Silence, Slot
from scorers.load.kv_utilization import KvUtilizationScorer
from scorers.load.queue import QueueScorer
from scorers.load.running import RunningRequestsScorer
from tests.epp.doubles import completion

HEAD = RequestHead({":path": "/v1/completions"})
LATE, UNREAD, GONE = Silence.LATE, Silence.UNREAD, Silence.GONE


def candidate(slot: int, silence: Silence | None, **numbers: float) -> Candidate:
    made = Candidate(Slot(slot), f"10.0.0.{slot}:80", fresh=silence is None, silence=silence or LATE)
    return msgspec.structs.replace(made, **numbers)  # type: ignore[arg-type]


@st.composite
def pools(draw: st.DrawFn) -> list[Candidate]:
    states = draw(st.lists(st.sampled_from([None, *Silence]), min_size=1, max_size=12))
    return [
        candidate(
            slot, silence, waiting=draw(st.integers(0, 9)), running=draw(st.integers(0, 300)),
            kv_usage=draw(st.floats(0, 1)),
        )
        for slot, silence in enumerate(states)
    ]  # fmt: skip


def slots(candidates: Sequence[Candidate]) -> set[Slot]:
    return {c.slot for c in candidates}


@given(pools())
def test_for_any_mix_of_endpoints_the_silent_never_displace_those_that_answer(pool: list[Candidate]) -> None:
    kept = serving(pool)
    fresh, late = ([c for c in pool if c.fresh], [c for c in pool if not c.fresh and c.silence is LATE])
    assert kept
    assert len(slots(kept)) == len(kept)
    assert slots(kept) <= slots(pool)
    assert slots(fresh) <= slots(kept), "whoever answers is a candidate"
    assert [c.fresh for c in kept] == sorted([c.fresh for c in kept], reverse=True), "the fresh come first"
    if fresh or late:
        assert slots(kept) <= slots(fresh) | slots(late), "nobody else is while one of them is there"
    else:
        assert slots(kept) == slots(pool)
    if fresh:
        assert (slots(kept) == slots(fresh)) == (2 * len(fresh) >= len(fresh) + len(late))
        assert [c for c in kept if c.fresh] == fresh, "the numbers of the fresh are their own"


@given(pools())
@pytest.mark.parametrize("scorer", [QueueScorer(), KvUtilizationScorer(), RunningRequestsScorer()], ids=str)
def test_a_late_endpoint_never_scores_better_than_the_worst_fresh_one(
    scorer: Scorer[msgspec.Struct], pool: list[Candidate]
) -> None:
    kept = serving(pool)
    scores = scorer.score(Request("r", "m", "m"), kept)
    fresh, others = (
        [s for c, s in zip(kept, scores, strict=True) if c.fresh is is_fresh] for is_fresh in (True, False)
    )
    if fresh and others:
        assert max(others) <= min(fresh)


def picks(answered_once: int, now: int, *, of: int, silence: Silence, count: int = 60) -> dict[str, int]:
    """Return where ``count`` requests go, each in flight until the last is placed.

    ``answered_once`` endpoints of ``of`` were read once, and all but the first ``now`` have an outage now; these
    first ones use 30 % of their memory.
    """
    core = Core(plan_from(None, None), Settings(), lambda: 100.0)
    core.pool.replace([Endpoint(f"10.0.0.{i}:80") for i in range(of)])
    for slot in map(Slot, range(answered_once)):
        core.pool.observe(slot, EngineMetrics(kv_usage=0.0), 1.0)
        if slot >= now:
            core.pool.mark_stale(slot, silence)
    for slot in map(Slot, range(now)):
        core.pool.observe(slot, EngineMetrics(kv_usage=0.3), 2.0)
    found = dict.fromkeys((c.address for c in core.pool.candidates()), 0)
    for number in range(count):
        decision = core.director.decide(HEAD, completion(f"{number} of many"))
        found[decision.destination] += 1
        core.ledger.close(decision.pick_id, Cause.COMPLETED)
    return found


@pytest.mark.parametrize(
    ("endpoints", "read_once", "now"),
    [(3, 1, 1), (2, 1, 1), (3, 3, 1), (4, 4, 1), (4, 4, 2), (10, 10, 4), (10, 10, 5), (10, 1, 1), (100, 30, 2)],
)
def test_every_request_goes_to_one_that_answers_however_many_are_gone_or_were_never_read(
    endpoints: int, read_once: int, now: int
) -> None:
    found = picks(read_once, now, of=endpoints, silence=GONE)
    assert sum(list(found.values())[:now]) == 60
    assert min(list(found.values())[:now]) > 0


def test_the_last_one_that_is_read_in_time_does_not_get_all_the_load() -> None:
    core = Core(plan_from(None, None), Settings(), lambda: 100.0)
    core.pool.replace([Endpoint(f"10.0.0.{i}:80") for i in range(8)])
    for slot in map(Slot, range(8)):
        core.pool.observe(slot, EngineMetrics(waiting=1, kv_usage=0.2), 1.0)
        if slot:
            core.pool.mark_stale(slot)
    for number in range(160):
        core.director.decide(HEAD, completion(f"{number} of many"))
    found = [c.in_flight for c in core.pool.candidates()]
    assert max(found) <= 2 * 160 / 8
    assert min(found) >= 160 / 8 / 2


def test_if_no_endpoint_is_fresh_the_late_ones_are_candidates() -> None:
    late, unread, gone = candidate(0, LATE), candidate(1, UNREAD), candidate(2, GONE)
    assert list(serving([late, unread, gone])) == [late]
    assert list(serving([unread, gone])) == [unread, gone]
    assert list(serving([gone])) == [gone]
    assert list(serving([])) == []


def test_a_subset_of_dead_endpoints_is_still_the_subset() -> None:
    core = Core(plan_from(None, None), Settings(), lambda: 100.0)
    core.pool.replace([Endpoint("10.0.0.1:80"), Endpoint("10.0.0.2:80")])
    core.pool.observe(Slot(0), EngineMetrics(), 1.0)
    core.pool.mark_stale(Slot(1), GONE)
    only = RequestHead(HEAD.headers, frozenset({"10.0.0.2:80"}))
    assert core.director.decide(only, completion()).destination == "10.0.0.2:80"
    assert core.director.decide_bodiless(only).destination == "10.0.0.2:80"


def test_fallbacks_are_the_fresh_before_the_late() -> None:
    pick, late, fresh = candidate(0, LATE), candidate(1, LATE), candidate(2, None)
    assert fresh_first((pick, late, fresh)) == (pick, fresh, late)
    core = Core(plan_from(None, None, picks=5), Settings(), lambda: 100.0)
    core.pool.replace([Endpoint(f"10.0.0.{i}:80") for i in range(5)])
    for slot in map(Slot, range(5)):
        core.pool.observe(slot, EngineMetrics(waiting=4 - slot), 1.0)
        if slot < 3:
            core.pool.mark_stale(slot)
    named = core.director.decide(HEAD, completion()).destination.split(",")
    assert set(named[:2]) == {"10.0.0.3:80", "10.0.0.4:80"}
    assert len(named) == 5
