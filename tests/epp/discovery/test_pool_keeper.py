"""A pool that is kept equal to pods, against a model that computes it anew after each event."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epp.discovery import pool_keeper
from epp.discovery.pool_keeper import PoolKeeper
from epp.kube.objects import Pod
from epp.pool.pool import Pool
from tests.epp.discovery.pods import ACTIVE, pod

A = "10.0.0.1:8000"


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Kept:
    """A pool, its keeper, and the keeper's clock; changes are applied by ``apply`` only."""

    def __init__(self, *, keep_s: float = 30.0, most: int = 100, ports: tuple[int, ...] = (8000,)) -> None:
        self.pool, self.clock = Pool(), Clock()
        self.keeper = PoolKeeper(self.pool, keep_s=keep_s, gather_s=3600.0, most=most, clock=self.clock)
        self.keeper.ports = ports

    def change(self, *pods: Pod) -> None:
        for item in pods:
            self.keeper.changed(item)
        self.keeper.apply()

    def list(self, *pods: Pod) -> None:
        for _ in self.keeper.listed([*pods]):
            pass

    def let_go(self) -> None:
        for _ in self.keeper.let_go():
            pass

    def shown(self) -> list[str]:
        return sorted(candidate.address for candidate in self.pool.candidates())

    def known(self) -> list[str]:
        return sorted(candidate.address for candidate in self.pool.everyone())

    def reading(self, name: str) -> float:
        (value,) = [sum(n for _, n in r.samples) for r in self.keeper.readings() if r.name == name]
        return value


def run(test: Callable[[], None]) -> None:
    """Run ``test`` on an event loop, whose timers never fire."""

    async def work() -> None:
        test()

    asyncio.run(work())


def test_a_pod_that_flaps_keeps_its_slot_and_takes_no_picks_meanwhile() -> None:
    def test() -> None:
        here = Kept()
        here.change(pod("a"))
        before = here.pool.candidates()[0]
        here.change(pod("a", ready="False"))
        assert (here.shown(), here.known()) == ([], [A])
        assert here.reading("tierwise_discovery_kept_unready") == 1
        here.clock.now = 29.0
        here.keeper.expire()
        here.change(pod("a"))
        assert here.pool.candidates()[0].slot == before.slot
        assert here.reading("tierwise_discovery_kept_unready") == 0

    run(test)


def test_after_a_while_what_is_known_is_dropped() -> None:
    def test() -> None:
        here = Kept()
        here.change(pod("a"), pod("b", ip="10.0.0.2"))
        here.change(pod("a", ready="False"))
        here.clock.now = 10.0
        here.change(pod("b", ip="10.0.0.2", ready="False"))
        here.clock.now = 30.0
        here.keeper.expire()
        assert here.known() == ["10.0.0.2:8000"]
        here.clock.now = 40.0
        here.keeper.expire()
        assert here.known() == []
        here.change(pod("a"))
        assert here.shown() == [A]

    run(test)


def test_without_a_selection_every_endpoint_is_kept_for_a_while_and_a_list_takes_back_those_that_are_the_same() -> None:
    def test() -> None:
        here = Kept(most=2)
        here.change(pod("a"), pod("b", ip="10.0.0.2"), pod("c", ip="10.0.0.3"))
        slots = {one.address: one.slot for one in here.pool.candidates()}
        here.keeper.removed(pod("b", ip="10.0.0.2"))  # not applied yet
        here.let_go()
        assert here.shown() == []
        assert here.known() == [A]
        assert [here.reading(f"tierwise_discovery_{name}") for name in ("kept_unready", "left_out")] == [1, 0]
        here.clock.now = 29.0
        here.keeper.expire()
        here.list(pod("a"), pod("c", ip="10.0.0.3"))
        assert here.shown() == [A, "10.0.0.3:8000"]
        assert here.pool.candidates()[0].slot == slots[A]
        assert here.reading("tierwise_discovery_kept_unready") == 0
        here.let_go()
        here.list(pod("a", started="2026-11-22T11:00:00Z"))
        assert here.known() == [A]
        assert here.reading("tierwise_discovery_kept_unready") == 0
        here.let_go()
        here.clock.now = 59.0
        here.keeper.expire()
        assert here.known() == []

    run(test)


def test_without_a_selection_nothing_is_kept_where_nothing_is_to_be_kept() -> None:
    def test() -> None:
        here = Kept(keep_s=0.0)
        here.change(pod("a"))
        here.let_go()
        assert here.known() == []

    run(test)


def test_the_loops_own_timer_drops_it_too() -> None:
    async def work() -> None:
        pool = Pool()
        keeper = PoolKeeper(pool, keep_s=0.01, gather_s=0.0)
        keeper.ports = (8000,)
        keeper.changed(pod("a"))
        keeper.changed(pod("a", ready="False"))
        keeper.changed(pod("b", ip="10.0.0.2"))
        async with asyncio.timeout(20):
            while [c.address for c in pool.everyone()] != ["10.0.0.2:8000"]:  # noqa: ASYNC110 - as below
                await asyncio.sleep(0.001)
        keeper.changed(pod("b", ip="10.0.0.2", ready="False"))
        async with asyncio.timeout(20):
            while pool.everyone():  # noqa: ASYNC110 - a pool announces nothing
                await asyncio.sleep(0.001)
        keeper.stop()

    asyncio.run(work())


@pytest.mark.parametrize("after", [
    {"uid": "another"}, {"started": "2026-11-22T10:30:00Z"}, {"deleted": "2026-11-22T11:00:00Z"},
    {"phase": "Succeeded"}, {"ip": ""}, {"annotations": {ACTIVE: ""}},
])  # fmt: skip
def test_what_is_known_of_a_pod_that_is_another_one_or_ends_is_dropped_at_once(after: dict[str, Any]) -> None:
    def test() -> None:
        here = Kept()
        here.change(pod("a"))
        here.change(pod("a", ready="False", **after))
        assert here.known() == []

    run(test)


def test_nothing_is_kept_where_keeping_is_turned_off() -> None:
    def test() -> None:
        here = Kept(keep_s=0.0)
        here.change(pod("a"))
        here.change(pod("a", ready="False"))
        assert here.known() == []

    run(test)


def test_an_endpoint_that_takes_no_picks_makes_room_in_a_full_pool() -> None:
    def test() -> None:
        here = Kept(most=2)
        here.change(pod("a"), pod("b", ip="10.0.0.2"))
        here.change(pod("a", ready="False"))
        here.change(pod("c", ip="10.0.0.3"))
        assert here.known() == here.shown() == ["10.0.0.2:8000", "10.0.0.3:8000"]
        here.change(pod("a"))
        assert here.reading("tierwise_discovery_left_out") == 1
        here.change(pod("b", ip="10.0.0.2", ready="False"))
        here.change(pod("b", ip="10.0.0.2", deleted="2026-11-22T11:00:00Z"))
        assert here.shown() == [A, "10.0.0.3:8000"]

    run(test)


def test_an_event_that_changes_no_endpoint_costs_no_work_in_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    def test() -> None:
        here = Kept()
        here.change(pod("a"), pod("b", ip="10.0.0.2", ready="False"))
        settled = list[str]()
        monkeypatch.setattr(here.keeper, "_settle", settled.append)
        here.change(pod("a", annotations={"seen": "again"}), pod("b", ip="10.0.0.2", ready="False", phase="Pending"))
        assert settled == []
        here.change(pod("a", labels={"app": "vllm", "model": "m"}))
        assert settled == [A]

    run(test)


def test_an_unready_pod_at_the_address_of_a_ready_one_changes_nothing() -> None:
    def test() -> None:
        here = Kept()
        here.change(pod("old"))
        here.change(pod("new", ready="False", created="2026-11-22T10:05:00Z"))
        assert here.pool.candidates()[0].name == "default/old-rank-0"
        assert here.reading("tierwise_discovery_disputed_addresses") == 0

    run(test)


def test_a_long_list_is_applied_in_steps_and_a_burst_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = [pod(f"p{n}", ip=f"10.0.{n // 250}.{n % 250}") for n in range(1000)]

    async def work() -> None:
        here = Kept(most=1000)
        sizes = [len(here.pool) for _ in here.keeper.listed(pods)]
        assert max(after - before for before, after in itertools.pairwise(sizes)) == 1
        assert sizes[-1] == 1000
        monkeypatch.setattr(pool_keeper, "SLICE_S", 0.0)
        for item in pods:
            here.keeper.removed(item)
        here.keeper.apply()
        assert len(here.pool) == 999, "one change in a slice of no length"
        async with asyncio.timeout(20):
            while len(here.pool):  # noqa: ASYNC110 - a pool announces nothing
                await asyncio.sleep(0)

    asyncio.run(work())


PODS = st.builds(
    lambda name, generation, host, restart, state: pod(
        name,
        uid=f"{name}-{generation}",
        created=f"2026-11-22T10:0{generation}:00Z",
        ip=f"10.0.0.{host}",
        started=f"2026-11-22T11:0{restart}:00Z",
        ready="True" if state == "ready" else "False",
        deleted="2026-11-22T12:00:00Z" if state == "ending" else None,
    ),
    st.sampled_from("abc"),
    st.integers(0, 2),
    st.integers(1, 2),
    st.integers(0, 1),
    st.sampled_from(["ready", "ready", "unready", "ending"]),
)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("change"), PODS),
        st.tuples(st.just("remove"), st.sampled_from("abc")),
        st.tuples(st.just("list"), st.lists(PODS, max_size=4)),
        st.tuples(st.just("ports"), st.sampled_from([(8000,), (8001,), (8000, 8001), (8001, 8000)])),
        st.tuples(st.just("wait"), st.integers(1, 40)),
    ),
    max_size=20,
)


def _born(item: Pod) -> str:
    return item.metadata.creation_timestamp


class Model:
    """All pods by name, and the ports; the pool is computed anew each time."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self.ports: tuple[int, ...] = (8000,)

    def change(self, item: Pod) -> bool:
        """Take a pod as it is now; return False for a late event of an older pod."""
        now = self.pods.get(item.metadata.name)
        claims = now is not None and not now.metadata.deletion_timestamp
        if now is not None and claims and now.metadata.uid != item.metadata.uid and _born(item) < _born(now):
            return False
        self.pods[item.metadata.name] = item
        return True

    def identities(self) -> dict[str, str]:
        """Return the identity of the endpoint at each address that takes picks."""
        found: dict[str, tuple[tuple[str, str], str]] = {}
        for item in self.pods.values():
            ready = any(c.type == "Ready" and c.status == "True" for c in item.status.conditions or ())
            if item.metadata.deletion_timestamp or not ready:
                continue
            statuses = item.status.container_statuses or ()
            running = statuses[0].state.running if statuses[0].state is not None else None
            for rank, port in enumerate(self.ports):
                address = f"{item.status.pod_ip}:{port}"
                age = (item.metadata.creation_timestamp, item.metadata.uid)
                declared = running.started_at if running is not None else "?"
                identity = f"{item.metadata.uid} {declared} {rank}"
                if address not in found or age > found[address][0]:
                    found[address] = age, identity
        return {address: identity for address, (_, identity) in found.items()}


def events_of(here: Kept, model: Model, events: list[tuple[str, Any]]) -> Iterator[None]:
    for what, value in events:
        if what == "change":
            if model.change(value):
                here.keeper.changed(value)
        elif what == "remove":
            if (gone := model.pods.pop(value, None)) is not None:
                here.keeper.removed(gone)
        elif what == "list":
            model.pods = {item.metadata.name: item for item in value}
            here.list(*model.pods.values())
        elif what == "ports":
            model.ports = here.keeper.ports = value
            here.list(*model.pods.values())
        else:
            here.clock.now += value
            here.keeper.expire()
        here.keeper.apply()
        yield


@settings(max_examples=150, deadline=None)
@given(EVENTS, st.sampled_from([0.0, 30.0]))
def test_whatever_happens_the_candidates_are_those_of_a_new_computation(
    events: list[tuple[str, Any]], keep_s: float
) -> None:
    def test() -> None:
        here, model = Kept(keep_s=keep_s), Model()
        for _ in events_of(here, model, events):
            shown = {c.address: here.pool.endpoint(c.address) for c in here.pool.candidates()}
            assert {a: e.identity for a, e in shown.items() if e is not None} == model.identities()
            if not keep_s:
                assert here.known() == here.shown()

    run(test)
