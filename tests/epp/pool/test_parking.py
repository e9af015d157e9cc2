"""Endpoints that take no picks for a while and keep what is known of them, and later endpoints at their addresses."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from epp.decision import Cause
from epp.pool.ledger import Ledger
from epp.pool.pool import Endpoint, EngineMetrics, Pool
from scorers.base import Candidate, Slot

A, B = "10.0.0.1:8000", "10.0.0.2:8000"


class Heard:
    """A listener that keeps the order of what it hears."""

    def __init__(self, pool: Pool) -> None:
        self.seen: list[str] = []
        pool.listeners.append(self)

    def endpoint_added(self, candidate: Candidate) -> None:
        self.seen.append(f"+{candidate.address}")

    def endpoint_removed(self, slot: Slot, address: str) -> None:
        self.seen.append(f"-{address}")

    def engine_reported(self, candidate: Candidate) -> None:
        self.seen.append(f"!{candidate.address}")


def pool_of(*addresses: str) -> Pool:
    pool = Pool()
    pool.replace([Endpoint(address) for address in addresses])
    return pool


def test_a_parked_endpoint_is_no_candidate_and_comes_back_with_its_numbers_and_requests() -> None:
    pool = pool_of(A, B)
    ledger, heard = Ledger(pool), Heard(pool)
    before = pool.candidates()[0]
    ledger.open(before, 10, 0.0)
    pool.park(A)
    pool.park(A)
    assert [c.address for c in pool.candidates()] == [B]
    assert [c.address for c in pool.everyone()] == [A, B]
    assert len(pool) == 1
    assert A in pool
    pool.observe(before.slot, EngineMetrics(running=3, started_s=1.0), began_at=1.0)
    pool.put(Endpoint(A, labels={"role": "decode"}))
    after = pool.candidates()[0]
    assert (after.address, after.slot, after.running, after.in_flight) == (A, before.slot, 3, 1)
    assert after.labels == {"role": "decode"}
    assert heard.seen == [f"!{A}"], "nobody hears that it was away"


def test_a_parked_endpoint_that_is_removed_leaves_nothing_behind() -> None:
    pool = pool_of(A, B)
    heard = Heard(pool)
    pool.park(A)
    pool.remove(A)
    assert heard.seen == [f"-{A}"]
    assert pool.everyone() == pool.candidates()
    pool.put(Endpoint(A))
    assert [c.address for c in pool.candidates()] == [A, B]


def test_waiting_requests_hear_that_an_endpoint_is_back() -> None:
    pool, changes = pool_of(A), list[int]()
    pool.park(A)
    pool.on_change.append(lambda: changes.append(len(pool)))
    pool.put(Endpoint(A))
    assert changes == [1]


def test_an_endpoint_of_another_identity_takes_the_place_and_inherits_no_requests() -> None:
    pool = Pool()
    ledger, heard = Ledger(pool, lease_s=100), Heard(pool)
    pool.put(Endpoint(A, identity="first"))
    old = ledger.open(pool.candidates()[0], 10, 0.0)
    pool.put(Endpoint(A, identity="second"))
    assert heard.seen == [f"+{A}", f"-{A}", f"+{A}"]
    assert (pool.candidates()[0].in_flight, ledger.in_flight(A), len(ledger)) == (0, 0, 1)
    new = ledger.open(pool.candidates()[0], 5, 1.0)
    ledger.answering(old)
    assert (pool.candidates()[0].in_flight, pool.candidates()[0].in_flight_tokens) == (1, 5)
    assert ledger.close(old, Cause.COMPLETED) is not None
    assert pool.candidates()[0].in_flight == 1
    ledger.close(new, Cause.COMPLETED)
    assert (pool.candidates()[0].in_flight, len(ledger), ledger.busy_endpoints()) == (0, 0, 0)


def test_an_endpoint_that_returns_with_its_identity_still_has_its_requests() -> None:
    pool = Pool()
    ledger = Ledger(pool)
    pool.put(Endpoint(A, identity="first"))
    ledger.open(pool.candidates()[0], 10, 0.0)
    pool.remove(A)
    pool.put(Endpoint(A, identity="first"))
    assert (pool.candidates()[0].in_flight, pool.candidates()[0].in_flight_tokens) == (1, 10)


STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "park", "remove", "fresh", "stale", "pick", "end"]), st.sampled_from("abc"),
              st.sampled_from(["x", "y"])),
    max_size=40,
)  # fmt: skip


@given(STEPS)
def test_whatever_happens_the_candidates_are_those_that_are_not_parked(steps: list[tuple[str, str, str]]) -> None:
    pool = Pool()
    ledger = Ledger(pool)
    there: dict[str, str] = {}  # the identity, by address
    parked, fresh, open_ = set[str](), set[str](), list[tuple[int, str, str]]()
    for now, (what, host, identity) in enumerate(steps):
        address = f"{host}:1"
        slot = seat.slot if (seat := pool.candidate(address)) is not None else Slot(99)
        if what == "put":
            pool.put(Endpoint(address, identity=identity))
            if there.get(address) != identity:
                fresh.discard(address)
            there[address] = identity
            parked.discard(address)
        elif what == "park" and address in there:
            pool.park(address)
            parked.add(address)
        elif what == "remove" and address in there:
            pool.remove(address)
            del there[address]
            parked.discard(address)
            fresh.discard(address)
        elif what == "fresh" and address in there:
            pool.observe(slot, EngineMetrics(), now)
            fresh.add(address)
        elif what == "stale":
            pool.mark_stale(slot)
            fresh.discard(address)
        elif what == "pick" and address in there and address not in parked and seat is not None:
            open_.append((ledger.open(seat, 1, now), address, there[address]))
        elif what == "end" and open_:
            ledger.close(open_.pop(0)[0], Cause.COMPLETED)
        candidates = there.keys() - parked
        assert {c.address for c in pool.candidates()} == candidates
        assert {c.address for c in pool.everyone()} == there.keys()
        assert len(pool) == len(candidates)
        assert pool.all_fresh == (candidates <= fresh)
        assert pool.any_fresh == bool(candidates & fresh)
        counts = Counter((address, identity) for _, address, identity in open_)
        assert {c.address: c.in_flight for c in pool.everyone()} == {a: counts[a, i] for a, i in there.items()}
