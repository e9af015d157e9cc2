"""Requests in flight: counted once, released once, on every path out."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from epp.decision import UNLABELLED, Cause, RequestLabels
from epp.pool.ledger import HELD_S, REPORT_S, TAKEN_BACK, Ledger
from epp.pool.pool import Endpoint, EngineMetrics, Pool
from scorers.base import Slot

A, B = "10.0.0.1:8000", "10.0.0.2:8000"
MINE = RequestLabels("mine")


@pytest.fixture
def pool() -> Pool:
    pool = Pool()
    pool.replace([Endpoint(A), Endpoint(B)])
    return pool


@pytest.fixture
def ledger(pool: Pool) -> Ledger:
    return Ledger(pool, lease_s=100, held_s=0)


def pick(pool: Pool, ledger: Ledger, address: str = A, now: float = 0, labels: RequestLabels = UNLABELLED) -> int:
    candidate = pool.candidate(address)
    assert candidate is not None
    return ledger.open(candidate, 10, now, labels)


def in_flight(pool: Pool) -> dict[str, int]:
    return {c.address: c.in_flight for c in pool.candidates()}


def test_a_pick_is_counted_in_its_own_step_and_closed_once(pool: Pool, ledger: Ledger) -> None:
    pick_id = pick(pool, ledger, labels=MINE)
    assert in_flight(pool) == {A: 1, B: 0}
    ticket = ledger.close(pick_id, Cause.COMPLETED)
    assert ticket is not None
    assert (ticket.labels, ticket.address, ticket.uncached_tokens) == (MINE, A, 10)
    assert ledger.close(pick_id, Cause.DISCONNECTED) is None
    assert in_flight(pool) == {A: 0, B: 0}
    assert ledger.released == Counter({Cause.COMPLETED: 1})


def test_a_pick_that_another_endpoint_answers_is_counted_there(pool: Pool, ledger: Ledger) -> None:
    pick_id = pick(pool, ledger, labels=MINE)
    assert ledger.move(pick_id, B, 5)
    assert [(c.in_flight, c.in_flight_tokens) for c in pool.candidates()] == [(0, 0), (1, 10)]
    assert not ledger.move(pick_id, B, 6), "it is there"
    assert not ledger.move(pick_id, "10.9.9.9:1", 6), "nobody is"
    assert not ledger.move(pick_id + 1, A, 6), "nobody's"
    ticket = ledger.close(pick_id, Cause.COMPLETED)
    assert ticket is not None
    assert (ticket.labels, ticket.address) == (MINE, B)
    assert in_flight(pool) == {A: 0, B: 0}


def test_an_unknown_id_closes_nothing(ledger: Ledger) -> None:
    assert ledger.close(12345, Cause.COMPLETED) is None
    assert not ledger.released


def test_ids_count_up_from_the_first_one(pool: Pool) -> None:
    assert pick(pool, Ledger(pool, first_id=7000)) == 7000


def test_leases_expire_oldest_first_and_their_picks_stay_open_until_closed(pool: Pool, ledger: Ledger) -> None:
    old, young = pick(pool, ledger, now=0), pick(pool, ledger, now=50)
    assert ledger.expire(99) == []
    assert ledger.expire(100) == [(old, Cause.LEASE_EXPIRED)]
    assert ledger.expire(150) == [(old, Cause.LEASE_EXPIRED), (young, Cause.LEASE_EXPIRED)]
    for pick_id, cause in ledger.expire(150):
        ledger.close(pick_id, cause)
    assert (len(ledger), ledger.expire(1000)) == (0, [])


def test_picks_of_a_removed_endpoint_end_as_usual_and_never_touch_the_next_one_in_its_slot(
    pool: Pool, ledger: Ledger
) -> None:
    pick_id = pick(pool, ledger, A, labels=MINE)
    pool.replace([Endpoint("10.0.0.9:8000"), Endpoint(B)])
    assert in_flight(pool) == {"10.0.0.9:8000": 0, B: 0}
    ticket = ledger.close(pick_id, Cause.COMPLETED)
    assert ticket is not None
    assert ticket.labels == MINE
    assert in_flight(pool) == {"10.0.0.9:8000": 0, B: 0}


def test_an_endpoint_that_was_away_for_a_moment_still_has_its_requests(pool: Pool, ledger: Ledger) -> None:
    first, _ = pick(pool, ledger, A), pick(pool, ledger, A)
    pool.replace([Endpoint(B)])
    pool.replace([Endpoint(A), Endpoint(B)])
    assert in_flight(pool) == {A: 2, B: 0}
    ledger.close(first, Cause.COMPLETED)
    assert in_flight(pool) == {A: 1, B: 0}


# Reconciliation


def scrape(ledger: Ledger, engine_requests: int, times: list[float]) -> list[tuple[int, Cause]]:
    released = []
    for began_at in times:
        released += ledger.reconcile(A, engine_requests, began_at)
    return released


def test_an_engine_that_keeps_reporting_fewer_requests_has_lost_the_oldest(pool: Pool, ledger: Ledger) -> None:
    ids = [pick(pool, ledger, now=float(i)) for i in range(3)]
    assert scrape(ledger, 1, [10, 11]) == []
    assert scrape(ledger, 1, [12]) == [(ids[0], Cause.RECONCILED), (ids[1], Cause.RECONCILED)]


def test_three_scrapes_within_a_moment_prove_nothing(pool: Pool, ledger: Ledger) -> None:
    pick(pool, ledger)
    assert scrape(ledger, 0, [10, 10.05, 10.1, 10.15]) == []


def test_one_scrape_that_counts_all_requests_is_enough_to_keep_them(pool: Pool, ledger: Ledger) -> None:
    pick(pool, ledger)
    assert scrape(ledger, 0, [10, 11]) + scrape(ledger, 1, [11.5]) + scrape(ledger, 0, [12]) == []


def test_young_picks_are_on_their_way_and_are_never_taken_back(pool: Pool, ledger: Ledger) -> None:
    pick(pool, ledger, now=9.5)
    assert scrape(ledger, 0, [10, 11, 12]) == []
    assert len(scrape(ledger, 0, [12.1, 13.1, 14.1])) == 1


def test_a_failed_scrape_begins_the_watch_anew(pool: Pool, ledger: Ledger) -> None:
    pick(pool, ledger)
    scrape(ledger, 0, [10, 11])
    ledger.unwatch(A)
    assert scrape(ledger, 0, [12, 13]) == []


def test_steady_traffic_whose_ends_are_reported_late_is_never_taken_back(pool: Pool, ledger: Ledger) -> None:
    """Send 100 requests a second, each for 1 s and reported 0.2 s later: the engine always counts 20 fewer."""
    open_picks: list[tuple[float, int]] = []
    for tick in range(1000):
        now = tick / 100
        open_picks.append((now, pick(pool, ledger, now=now)))
        while open_picks and open_picks[0][0] <= now - 1.2:
            ledger.close(open_picks.pop(0)[1], Cause.COMPLETED)
        if tick % 5 == 0:
            running = sum(opened > now - 1.0 for opened, _ in open_picks)
            assert ledger.reconcile(A, running, now) == []


def test_an_engine_that_undercounts_takes_back_no_pick_whose_stream_is_held(pool: Pool) -> None:
    ledger = Ledger(pool)
    pick_id = pick(pool, ledger)
    times = [10.0 + n for n in range(int(HELD_S) - 11)]
    assert scrape(ledger, 0, times) == []
    assert scrape(ledger, 0, [HELD_S + n for n in range(1, 6)]) == [(pick_id, Cause.RECONCILED)]


def test_a_late_report_finds_a_reconciled_pick_once(pool: Pool, ledger: Ledger) -> None:
    taken, ended = pick(pool, ledger, labels=MINE), pick(pool, ledger)
    ledger.close(taken, Cause.RECONCILED)
    ledger.close(ended, Cause.COMPLETED)
    ticket = ledger.late(taken)
    assert ticket is not None
    assert ticket.labels == MINE
    assert (ledger.late(taken), ledger.late(ended)) == (None, None)
    assert ledger.released == Counter({Cause.RECONCILED: 1, Cause.COMPLETED: 1})


def test_few_picks_that_were_taken_back_are_remembered(pool: Pool, ledger: Ledger) -> None:
    picks = [pick(pool, ledger) for _ in range(TAKEN_BACK + 1)]
    for pick_id in picks:
        ledger.close(pick_id, Cause.RECONCILED)
    assert [pick_id for pick_id in picks if ledger.late(pick_id) is None] == picks[:1]


class AnyHistory(RuleBasedStateMachine):
    """The ledger and its pool against plain dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool()
        self.ledger = Ledger(self.pool, lease_s=10, held_s=0)
        self.open: dict[int, tuple[str, float]] = {}
        self.labels: dict[int, RequestLabels] = {}
        self.uncomputed: dict[int, int] = {}
        self.closed: list[int] = []
        self.causes: Counter[Cause] = Counter()
        self.now = 0.0

    @rule(hosts=st.sets(st.sampled_from("abcd")))
    def replace(self, hosts: set[str]) -> None:
        self.pool.replace([Endpoint(f"{host}:1") for host in sorted(hosts)])

    @rule(seconds=st.floats(0, 4))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: len(self.pool))
    @rule(data=st.data(), tokens=st.integers(0, 10_000))
    def pick(self, data: st.DataObject, tokens: int) -> None:
        candidate = data.draw(st.sampled_from(self.pool.candidates()))
        pick_id = self.ledger.open(candidate, tokens, self.now, RequestLabels(str(self.now)))
        assert pick_id not in self.open
        self.open[pick_id] = (candidate.address, self.now)
        self.labels[pick_id] = RequestLabels(str(self.now))
        self.uncomputed[pick_id] = tokens

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def answering(self, data: st.DataObject) -> None:
        pick_id = data.draw(st.sampled_from(sorted(self.open) + self.closed[-3:]))
        self.ledger.answering(pick_id)
        self.uncomputed.pop(pick_id, None)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), host=st.sampled_from("abcd"))
    def move(self, data: st.DataObject, host: str) -> None:
        pick_id, address = data.draw(st.sampled_from(sorted(self.open))), f"{host}:1"
        moves = address in self.pool and self.open[pick_id][0] != address
        assert self.ledger.move(pick_id, address, self.now) == moves
        if moves:
            del self.open[pick_id]  # the youngest from now on
            self.open[pick_id] = (address, self.now)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), cause=st.sampled_from(Cause))
    def close(self, data: st.DataObject, cause: Cause) -> None:
        self.end(data.draw(st.sampled_from(sorted(self.open))), cause)

    @precondition(lambda self: self.closed)
    @rule(data=st.data())
    def close_again(self, data: st.DataObject) -> None:
        assert self.ledger.close(data.draw(st.sampled_from(self.closed)), Cause.COMPLETED) is None

    @rule()
    def expire(self) -> None:
        over = self.ledger.expire(self.now)
        assert [pick_id for pick_id, _ in over] == [i for i, (_, at) in self.open.items() if at + 10 <= self.now]
        for pick_id, cause in over:
            self.end(pick_id, cause)

    @rule(host=st.sampled_from("abcd"), requests=st.integers(0, 5))
    def scrape(self, host: str, requests: int) -> None:
        address = f"{host}:1"
        here = [pick_id for pick_id, (at, _) in self.open.items() if at == address]
        lost = self.ledger.reconcile(address, requests, self.now)
        assert [pick_id for pick_id, _ in lost] == here[: len(lost)]
        assert len(lost) <= max(0, len(here) - requests)
        for pick_id, cause in lost:
            self.end(pick_id, cause)
        candidate = self.pool.candidate(address)
        if candidate is not None:
            self.pool.observe(candidate.slot, EngineMetrics(running=requests), self.now)

    def end(self, pick_id: int, cause: Cause) -> None:
        ticket = self.ledger.close(pick_id, cause)
        address, opened_at = self.open.pop(pick_id)
        self.uncomputed.pop(pick_id, None)
        assert ticket is not None
        assert (ticket.address, ticket.opened_at, ticket.labels) == (address, opened_at, self.labels[pick_id])
        self.closed.append(pick_id)
        self.causes[cause] += 1

    @invariant()
    def counts_are_exact(self) -> None:
        by_address = Counter(address for address, _ in self.open.values())
        assert len(self.ledger) == len(self.open)
        assert self.ledger.busy_endpoints() == len(by_address)
        assert self.ledger.released == self.causes
        assert self.ledger._answering <= self.open.keys(), "nothing is kept of a pick that has ended"
        for candidate in self.pool.candidates():
            assert candidate.in_flight == by_address[candidate.address] == self.ledger.in_flight(candidate.address)
            tokens = [t for i, t in self.uncomputed.items() if self.open[i][0] == candidate.address]
            assert candidate.in_flight_tokens == sum(tokens)
            assert candidate.waiting >= 0
            assert candidate.running >= 0


AnyHistory.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_any_history = AnyHistory.TestCase


def test_a_slot_beyond_the_table_has_no_endpoint(pool: Pool) -> None:
    pool.mark_stale(Slot(99))
    assert len(pool) == 2


def test_a_request_that_left_is_released_when_its_report_is_overdue_and_not_before() -> None:
    pool = Pool()
    ledger = Ledger(pool, first_id=1)
    pool.replace([Endpoint("10.0.0.1:8000")])
    reported, silent = (ledger.open(pool.candidates()[0], 0, 0.0) for _ in range(2))
    ledger.leave(reported, 1.0)
    ledger.leave(silent, 1.0)
    ledger.close(reported, Cause.COMPLETED)
    ledger.leave(reported, 1.5)
    assert ledger.expire(1.0 + REPORT_S - 0.1) == []
    assert ledger.expire(1.0 + REPORT_S) == [(silent, Cause.UNREPORTED)]
