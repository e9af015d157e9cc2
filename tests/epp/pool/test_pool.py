"""The endpoints by slot, and the numbers that decisions see."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp.errors import ConfigError
from epp.pool.pool import Endpoint, EngineMetrics, Pool
from scorers.base import Candidate, Slot, Tier, TierReport


def pool_of(*addresses: str) -> Pool:
    pool = Pool()
    pool.replace([Endpoint(address) for address in addresses])
    return pool


@dataclass
class Listener:
    heard: list[tuple[str, int, str]] = field(default_factory=list)

    def endpoint_added(self, candidate: Candidate) -> None:
        self.heard.append(("added", candidate.slot, candidate.address))

    def endpoint_removed(self, slot: Slot, address: str) -> None:
        self.heard.append(("removed", slot, address))

    def engine_reported(self, candidate: Candidate) -> None:
        self.heard.append(("reported", candidate.slot, str(candidate.gpu_blocks)))


def test_the_lowest_free_slot_is_reused_and_candidates_stay_in_slot_order() -> None:
    pool = pool_of("a:1", "b:1", "c:1", "d:1")
    pool.replace([Endpoint("b:1"), Endpoint("d:1")])
    pool.replace([Endpoint(address) for address in ("d:1", "e:1", "b:1", "f:1", "g:1")])
    assert [(c.slot, c.address) for c in pool.candidates()] == [
        (0, "e:1"),
        (1, "b:1"),
        (2, "f:1"),
        (3, "d:1"),
        (4, "g:1"),
    ]


def test_the_snapshot_is_the_same_object_until_something_changes() -> None:
    pool = pool_of("a:1", "b:1")
    before = pool.candidates()
    assert pool.candidates() is before
    pool.observe(Slot(0), EngineMetrics(running=1), began_at=1)
    after = pool.candidates()
    assert (before[0].running, after[0].running) == (0, 1)
    assert before[1] is after[1]


def test_an_equal_observation_changes_nothing_that_a_decision_sees() -> None:
    pool = pool_of("a:1")
    pool.observe(Slot(0), EngineMetrics(), began_at=1)
    fresh = pool.candidates()
    assert fresh[0].fresh
    pool.observe(Slot(0), EngineMetrics(), began_at=5)
    assert pool.candidates() is fresh
    pool.observe(Slot(0), EngineMetrics(running=9), began_at=4)
    assert pool.candidates() is fresh
    pool.mark_stale(Slot(0))
    pool.observe(Slot(0), EngineMetrics(), began_at=6)
    assert pool.candidates() == fresh


def test_an_equal_observation_still_includes_the_picks_before_it() -> None:
    pool = pool_of("a:1")
    for began_at in (1, 2):
        pool.observe(Slot(0), EngineMetrics(running=1), began_at)
        pool.pick("a:1", began_at, 10, now=began_at)
    pool.end("a:1", 1, 10)
    assert pool.candidates()[0].running == 2
    pool.observe(Slot(0), EngineMetrics(running=1), began_at=3)
    assert pool.candidates()[0].running == 1


@pytest.mark.parametrize(
    "address",
    [
        "", "a", "a:", ":1", "a:0", "a:65536", "a:-1", "a:1:2", "fd00::7:8000", "[fd00::7]", "[a]:1", "a b:1", "a,b:1",
        "http://a:1", "a:\uff11", "a:1\n", "-a:1",
    ],
)  # fmt: skip
def test_a_refused_list_changes_nothing_and_is_named(address: str) -> None:
    pool = pool_of("a:1")
    with pytest.raises(ConfigError, match="is not host:port"):
        pool.replace([Endpoint("b:1"), Endpoint(address)])
    assert [c.address for c in pool.candidates()] == ["a:1"]


@pytest.mark.parametrize("address", ["10.0.0.7:8000", "[fd00::7]:8000", "vllm-0.vllm.default.svc:8000", "a_b:65535"])
def test_addresses_and_host_names_are_taken(address: str) -> None:
    assert pool_of(address).candidates()[0].address == address


def test_an_address_that_is_listed_twice_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="a:1 is listed twice"):
        pool_of("a:1", "a:1")


def test_more_endpoints_than_the_limit_are_refused() -> None:
    with pytest.raises(ConfigError, match="10001 endpoints, and a pool holds at most 10000"):
        Pool().replace([Endpoint(f"a:{1 + number}") for number in range(10_001)])


def test_listeners_hear_of_removals_before_the_slot_is_reused() -> None:
    pool, listener = pool_of("a:1"), Listener()
    pool.listeners.append(listener)
    pool.replace([Endpoint("b:1")])
    assert listener.heard == [("removed", 0, "a:1"), ("added", 0, "b:1")]


def test_listeners_get_cache_sizes_when_they_become_known_and_when_they_change() -> None:
    pool, listener = pool_of("a:1"), Listener()
    pool.listeners.append(listener)
    for blocks in (None, 100, 100, 200):
        pool.observe(Slot(0), EngineMetrics(gpu_blocks=blocks), began_at=1)
    assert listener.heard == [("reported", 0, "100"), ("reported", 0, "200")]


def test_reports_on_tiers_reach_decisions_and_listeners_when_they_change() -> None:
    pool, listener = pool_of("a:1"), Listener()
    pool.listeners.append(listener)
    for horizon_s in (1.0, 1.0, 2.0):
        tiers = {Tier.CPU: TierReport(capacity_tokens=4096, horizon_s=horizon_s)}
        pool.observe(Slot(0), EngineMetrics(tiers=tiers), began_at=horizon_s)
        assert pool.candidates()[0].tiers == tiers
    assert listener.heard == [("reported", 0, "None")] * 2


def test_new_labels_reach_the_candidate_and_its_numbers_stay() -> None:
    pool = pool_of("a:1")
    pool.observe(Slot(0), EngineMetrics(waiting=3), began_at=1)
    pool.replace([Endpoint("a:1", labels={"role": "decode"})])
    assert (pool.candidates()[0].labels, pool.candidates()[0].waiting) == ({"role": "decode"}, 3)


def test_an_endpoint_is_fresh_from_its_first_reading_until_it_is_marked_stale() -> None:
    pool = pool_of("a:1")
    seen = [pool.candidates()[0].fresh]
    pool.observe(Slot(0), EngineMetrics(), began_at=1)
    seen.append(pool.candidates()[0].fresh)
    pool.mark_stale(Slot(0))
    seen.append(pool.candidates()[0].fresh)
    assert seen == [False, True, False]


def test_a_reading_that_is_older_than_the_last_one_is_ignored() -> None:
    pool = pool_of("a:1")
    pool.observe(Slot(0), EngineMetrics(running=2), began_at=5)
    pool.observe(Slot(0), EngineMetrics(running=9), began_at=4)
    pool.observe(Slot(7), EngineMetrics(running=9), began_at=6)
    assert pool.candidates()[0].running == 2


def test_the_first_request_in_flight_is_announced_and_no_other() -> None:
    pool, heard = pool_of("a:1"), list[str]()
    pool.on_busy.append(heard.append)
    pool.pick("a:1", 1, 10, now=0)
    pool.pick("a:1", 2, 10, now=0)
    pool.end("a:1", 1, 10)
    pool.end("a:1", 2, 10)
    pool.pick("a:1", 3, 10, now=0)
    assert heard == ["a:1", "a:1"]


# The estimate of what no scrape has seen.


def estimate(pool: Pool) -> tuple[int, int, int]:
    only = pool.candidates()[0]
    return only.waiting, only.running, only.in_flight


def test_unseen_picks_run_until_a_step_of_prefill_is_ahead_of_them() -> None:
    pool = pool_of("a:1")
    for pick_id, tokens in enumerate((5000, 5000, 100, 100)):
        pool.pick("a:1", pick_id, tokens, now=0)
    assert estimate(pool) == (2, 2, 4)


def test_unseen_picks_wait_where_the_engine_already_queues() -> None:
    pool = pool_of("a:1")
    pool.observe(Slot(0), EngineMetrics(waiting=1, running=4), began_at=0)
    pool.pick("a:1", 1, 10, now=1)
    assert estimate(pool) == (2, 4, 1)


def test_unseen_picks_wait_where_the_batch_is_full() -> None:
    pool = pool_of("a:1")
    pool.observe(Slot(0), EngineMetrics(running=255), began_at=0)
    pool.pick("a:1", 1, 10, now=1)
    pool.pick("a:1", 2, 10, now=1)
    assert estimate(pool) == (1, 256, 2)


def test_unseen_picks_take_the_kv_that_they_must_compute() -> None:
    pool = pool_of("a:1")
    engine = EngineMetrics(kv_usage=0.5, block_tokens=16, gpu_blocks=100)
    pool.observe(Slot(0), engine, 1.0)
    pool.pick("a:1", 1, 400, 2.0)
    assert pool.candidates()[0].kv_usage == pytest.approx(0.75)
    pool.pick("a:1", 2, 4000, 2.0)
    assert pool.candidates()[0].kv_usage == 1.0
    pool.observe(Slot(0), msgspec.structs.replace(engine, running=2), 3.0)
    assert pool.candidates()[0].kv_usage == 0.5


def test_a_scrape_takes_over_the_picks_before_it_began() -> None:
    pool = pool_of("a:1")
    pool.pick("a:1", 1, 10, now=1)
    pool.pick("a:1", 2, 10, now=3)
    pool.observe(Slot(0), EngineMetrics(running=1), began_at=2)
    assert estimate(pool) == (0, 2, 2)


def test_a_scrape_of_an_engine_in_a_long_step_does_not_hide_what_it_has_not_counted() -> None:
    pool = pool_of("a:1")
    for pick_id in range(3):
        pool.pick("a:1", pick_id, 10, now=1)
    pool.observe(Slot(0), EngineMetrics(running=1), began_at=1.5)
    assert estimate(pool) == (0, 3, 3)
    pool.observe(Slot(0), EngineMetrics(running=1), began_at=4)
    assert estimate(pool) == (0, 1, 3)


def test_a_pick_that_ended_unseen_is_no_longer_counted() -> None:
    pool = pool_of("a:1")
    pool.pick("a:1", 1, 9000, now=1)
    pool.pick("a:1", 2, 10, now=1)
    pool.end("a:1", 1, 9000)
    pool.end("a:1", 2, 10)
    assert estimate(pool) == (0, 0, 0)
    pool.pick("a:1", 3, 10, now=1)
    assert estimate(pool) == (0, 1, 1)


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), unique=True), max_size=20))
def test_slots_and_addresses_are_always_one_to_one(lists: list[list[str]]) -> None:
    pool, listener = Pool(), Listener()
    pool.listeners.append(listener)
    for hosts in lists:
        kept = {c.address: c.slot for c in pool.candidates()}
        pool.replace([Endpoint(f"{host}:1") for host in hosts])
        now = {c.address: c.slot for c in pool.candidates()}
        assert set(now) == {f"{host}:1" for host in hosts}
        assert sorted(now.values()) == [c.slot for c in pool.candidates()]
        assert len(set(now.values())) == len(now)
        assert all(now[address] == slot for address, slot in kept.items() if address in now)
        new = [slot for address, slot in now.items() if address not in kept]
        survivors = {slot for address, slot in now.items() if address in kept}
        free = [slot for slot in range(20) if slot not in survivors]
        assert sorted(new) == free[: len(new)]


def test_a_response_that_begins_frees_capacity_and_notifies() -> None:
    pool, changes = pool_of("a:1"), []
    pool.pick("a:1", 1, 10, 0.0)
    pool.on_change.append(lambda: changes.append(pool.candidates()[0].in_flight_tokens))
    pool.answering("a:1", 10)
    assert changes == [0]


@given(st.lists(st.tuples(st.sampled_from(["replace", "observe", "stale"]), st.integers(0, 15)), max_size=30))
def test_all_are_fresh_when_each_of_them_is(steps: list[tuple[str, int]]) -> None:
    pool = Pool()
    for at, (step, number) in enumerate(steps):
        if step == "replace":
            pool.replace([Endpoint(f"{host}:1") for n, host in enumerate("abcd") if number >> n & 1])
        elif step == "observe":
            pool.observe(Slot(number % 4), EngineMetrics(running=number), began_at=at)
        else:
            pool.mark_stale(Slot(number % 4))
        assert pool.all_fresh == all(candidate.fresh for candidate in pool.candidates())
