"""Which chunks are loaded and stored, and when a request waits."""

from __future__ import annotations

import pytest

from kvengine.copiers import Direction
from kvengine.index import ChunkIndex, ChunkKey
from kvengine.plan import PATIENCE_S, Planner
from kvengine.request_state import RequestState
from tests.kvengine.clock import Clock
from tests.kvengine.requests import Requests

KEYS = [ChunkKey(bytes([n])) for n in range(8)]


@pytest.fixture
def planner(clock: Clock) -> Planner:
    return Planner(ChunkIndex(4), chunk_blocks=2, workers=1, shares_loads=True, clock=clock)


def stored(planner: Planner, requests: Requests, count: int) -> None:
    for job in planner.store(requests["before"], KEYS[:count], range(100, 100 + 2 * count)):
        planner.finished(job.id, ok=True)


def test_what_was_stored_is_matched_and_loaded(planner: Planner, requests: Requests) -> None:
    stored(planner, requests, 3)
    assert planner.match(requests["a"], KEYS, 0) == 3
    job = planner.load(requests["a"], KEYS, 0, [1, 2, 3, 4, 5, 6])
    assert (job.direction, job.first, job.blocks) == (Direction.LOAD, 0, [1, 2, 3, 4, 5, 6])
    assert len(set(job.slots)) == 3
    assert planner.index.pinned == 3
    ended = planner.finished(job.id, ok=True)
    assert ended is not None
    assert ended.ok
    assert planner.index.pinned == 0


def test_a_load_may_begin_within_a_chunk(planner: Planner, requests: Requests) -> None:
    stored(planner, requests, 3)
    job = planner.load(requests["a"], KEYS, 3, [7, 8, 9])
    assert (job.first, len(job.slots)) == (1, 2)


def test_a_job_is_over_when_every_worker_has_finished_it(clock: Clock, requests: Requests) -> None:
    planner = Planner(ChunkIndex(4), chunk_blocks=1, workers=2, shares_loads=True, clock=clock)
    (job,) = planner.store(requests["a"], KEYS[:1], [5])
    assert planner.finished(job.id, ok=True) is None
    assert planner.match(requests["b"], KEYS, 0) == 0
    assert planner.finished(job.id, ok=True) is not None
    assert planner.finished(job.id, ok=True) is None, "a second report of a worker changes nothing"


def test_one_worker_that_fails_spoils_the_store(clock: Clock, requests: Requests) -> None:
    planner = Planner(ChunkIndex(4), chunk_blocks=1, workers=2, shares_loads=True, clock=clock)
    (job,) = planner.store(requests["a"], KEYS[:1], [5])
    planner.finished(job.id, ok=False)
    planner.finished(job.id, ok=True)
    assert KEYS[0] not in planner.index


def test_a_chunk_whose_load_failed_is_not_offered_again(planner: Planner, requests: Requests) -> None:
    stored(planner, requests, 2)
    job = planner.load(requests["a"], KEYS, 0, [1, 2, 3, 4])
    ended = planner.finished(job.id, ok=False)
    assert ended is not None
    assert not ended.ok
    assert planner.match(requests["b"], KEYS, 0) == 0


def test_a_request_waits_while_another_loads_the_same_chunk_but_not_forever(
    planner: Planner, clock: Clock, requests: Requests
) -> None:
    stored(planner, requests, 2)
    planner.load(requests["a"], KEYS, 0, [1, 2, 3, 4])
    assert planner.match(requests["b"], KEYS, 0) is None
    clock.now += PATIENCE_S - 0.1
    assert planner.match(requests["b"], KEYS, 0) is None
    clock.now += 0.2
    assert planner.match(requests["b"], KEYS, 0) == 0, "it computes the chunks"
    assert (planner.counts.waited, planner.counts.gave_up_waiting) == (1, 1)


def test_without_prefix_caching_no_request_waits(clock: Clock, requests: Requests) -> None:
    planner = Planner(ChunkIndex(4), chunk_blocks=2, workers=1, shares_loads=False, clock=clock)
    stored(planner, requests, 2)
    planner.load(requests["a"], KEYS, 0, [1, 2, 3, 4])
    assert planner.match(requests["b"], KEYS, 0) == 2


def test_a_chunk_is_stored_once(planner: Planner, requests: Requests) -> None:
    (first,) = planner.store(requests["a"], KEYS[:2], range(4))
    assert planner.store(requests["b"], KEYS[:2], range(10, 14)) == []
    (third,) = planner.store(requests["b"], KEYS[:3], range(10, 16))
    assert third.blocks == [14, 15]
    assert first.blocks == [0, 1, 2, 3]


def test_chunks_without_a_slot_are_skipped_and_counted(planner: Planner, requests: Requests) -> None:
    assert planner.store(requests["a"], KEYS[:5], range(10)) == []
    assert planner.counts.no_slot == 5
    assert planner.index.resident == 0


def test_the_jobs_of_a_request_that_has_ended_go_on(planner: Planner, requests: Requests) -> None:
    (job,) = planner.store(requests["a"], KEYS[:1], range(2))
    planner.ended(KEYS[:1])
    assert planner.jobs
    planner.finished(job.id, ok=True)
    assert not planner.jobs
    planner.index.check()


def test_while_slots_are_still_becoming_ready_chunks_without_one_are_offered_again(
    planner: Planner, requests: Requests
) -> None:
    planner.growing = True
    assert planner.store(requests["a"], KEYS[:6], range(12)) == []
    assert requests["a"].considered == 0
    assert planner.counts.no_slot == 0
    planner.index.grow(6)
    (job,) = planner.store(requests["a"], KEYS[:6], range(12))
    assert len(job.slots) == 6
    assert requests["a"].considered == 6


def test_when_all_slots_are_ready_chunks_without_one_are_counted_and_left_out(
    planner: Planner, requests: Requests
) -> None:
    assert planner.store(requests["a"], KEYS[:6], range(12)) == []
    assert requests["a"].considered == 6
    assert planner.counts.no_slot == 6


def test_a_prompt_is_in_use_until_its_request_ends_wherever_it_was_found(
    planner: Planner, clock: Clock, requests: Requests
) -> None:
    """Most turns of a conversation find their beginning on the device; its host copy must not age meanwhile."""
    planner = Planner(ChunkIndex(4, clock=clock), chunk_blocks=2, workers=1, shares_loads=True, clock=clock)
    for request, keys in (("first", KEYS[:2]), ("other", KEYS[4:6])):
        for job in planner.store(requests[request], keys, range(100, 104)):
            planner.finished(job.id, ok=True)
    clock.now = 10.0
    planner.ended(KEYS[:3])
    assert planner.index.match(KEYS) == 2
    planner.index.insert([KEYS[6], KEYS[7]])
    assert planner.index.match(KEYS) == 2
    assert planner.index.match(KEYS[4:]) == 0


def test_a_reset_reaches_chunks_that_were_computed_but_neither_looked_up_nor_stored_yet(
    planner: Planner, requests: Requests
) -> None:
    # Its first step computes less than a chunk, and an instance that only stores looks nothing up.
    planner.begun(requests["a"])
    planner.clear()
    assert planner.store(requests["a"], KEYS[:2], range(4)) == []


def test_a_reset_while_a_request_waits_for_its_first_blocks_does_not_keep_it_from_being_stored(
    planner: Planner,
) -> None:
    request = RequestState("a")
    assert planner.match(request, KEYS, 0) == 0
    planner.clear()
    planner.begun(request)
    assert len(planner.store(request, KEYS[:2], range(4))) == 1


def test_nothing_is_stored_of_a_request_that_has_no_blocks_yet(planner: Planner) -> None:
    assert planner.store(RequestState("a"), KEYS[:2], range(4)) == []


def test_a_lookup_is_remembered_only_for_its_keys(planner: Planner, requests: Requests) -> None:
    stored(planner, requests, 2)
    assert planner.match(requests["a"], KEYS[:2], 0) == 2
    assert planner.match(requests["a"], KEYS[:3], 0) == 2
    assert planner.match(requests["a"], [KEYS[0], KEYS[7]], 0) == 1, "the request has other tokens now"
