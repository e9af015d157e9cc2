"""Which chunks are stored at once, and which only when they are computed again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvengine.admission import Admission
from kvengine.index import ChunkIndex, ChunkKey
from kvengine.plan import Planner
from tests.kvengine.requests import Requests

KEYS = [ChunkKey(bytes([n])) for n in range(8)]


def test_everything_is_stored_at_once_by_default() -> None:
    assert Admission().admit(KEYS) == 8


def test_a_chunk_is_stored_when_it_is_computed_for_the_nth_time() -> None:
    admission = Admission(store_after=3)
    assert [admission.admit(KEYS[:4]) for _ in range(3)] == [0, 0, 4]
    assert admission.deferred == 8


def test_a_chunk_waits_for_those_it_builds_upon() -> None:
    admission = Admission(store_after=2)
    admission.admit(KEYS[2:4])
    assert admission.admit(KEYS[:4]) == 0, "the last two have been seen twice, the first two have not"
    assert admission.admit(KEYS[:4]) == 4


def test_what_is_remembered_is_bounded() -> None:
    admission = Admission(store_after=2, remembered=100)
    for number in range(10_000):
        admission.admit([ChunkKey(number.to_bytes(4, "big"))])
    assert len(admission._offers) == 100


@given(st.lists(st.lists(st.sampled_from(KEYS), unique=True, max_size=6), max_size=30), st.integers(1, 4))
def test_nothing_is_admitted_before_its_time(offers: list[list[ChunkKey]], store_after: int) -> None:
    admission, seen = Admission(store_after), dict.fromkeys(KEYS, 0)
    for keys in offers:
        for key in keys:
            seen[key] += 1
        admitted = admission.admit(keys)
        assert all(seen[key] >= store_after for key in keys[:admitted])
        for key in keys[:admitted]:
            seen[key] = 0  # stored; it is offered again only after it was evicted


def test_a_planner_stores_what_is_computed_again_and_not_what_is_computed_once(requests: Requests) -> None:
    planner = Planner(
        ChunkIndex(8), chunk_blocks=1, workers=1, shares_loads=True, clock=lambda: 0.0, admission=Admission(2)
    )
    assert planner.store(requests["a"], KEYS[:3], range(3)) == []
    assert planner.store(requests["a"], KEYS[:3], range(3)) == [], "the same computation, looked at in a later step"
    (job,) = planner.store(requests["b"], KEYS[:3], range(3))
    assert len(job.slots) == 3
