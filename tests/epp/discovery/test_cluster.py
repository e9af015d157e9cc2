"""A pool that follows the pods of an API server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from epp.discovery.cluster import PodDiscovery
from epp.discovery.options import PodOptions
from epp.discovery.pool_keeper import PoolKeeper
from epp.kube.client import Client
from epp.pool.pool import Pool
from scorers.base import Candidate, Slot
from tests.epp.discovery.following import Following
from tests.epp.discovery.pods import ACTIVE, pod, written
from tests.epp.kube.access import TokenAccess
from tests.epp.kube.api_server import ApiServer, api_server, status


class Changes:
    """A listener that keeps the order of what happens to endpoints."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def endpoint_added(self, candidate: Candidate) -> None:
        self.seen.append(f"+{candidate.address}")

    def endpoint_removed(self, slot: Slot, address: str) -> None:
        self.seen.append(f"-{address}")

    def engine_reported(self, candidate: Candidate) -> None:
        pass


class Site(Following):
    """An API server, and a pool that follows its pods."""

    def __init__(self, server: ApiServer, ports: tuple[int, ...], **settings: Any) -> None:
        self.server, self.pool, self.changes = server, Pool(), Changes()
        self.pool.listeners.append(self.changes)
        self.client = Client(TokenAccess(server.url))
        self.keeper = PoolKeeper(self.pool, **settings)
        selected = PodOptions(selector="app=vllm", ports=ports)
        self.discovery = PodDiscovery(self.client, self.keeper, namespace="default", selected=selected)

    def gauges(self) -> dict[str, float]:
        return {reading.name: sum(n for _, n in reading.samples) for reading in self.discovery.readings()}


@asynccontextmanager
async def site(*pods: dict[str, Any], ports: tuple[int, ...] = (8000,), **settings: Any) -> AsyncIterator[Site]:
    async with api_server() as server:
        for item in pods:
            await server.put(item)
        here = Site(server, ports, **settings)
        async with here.started():
            yield here


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_pods_come_and_go_with_their_readiness() -> None:
    async def work() -> None:
        async with site(written("a"), written("b", ip="10.0.0.2", ready="False")) as here:
            await here.shows("10.0.0.1:8000")
            await here.server.put(written("b", ip="10.0.0.2"))
            await here.shows("10.0.0.1:8000", "10.0.0.2:8000")
            await here.server.put(written("a", deleted="2026-11-22T11:00:00Z"))
            await here.shows("10.0.0.2:8000")
            await here.server.delete("b")
            await here.shows()

    run(work())


def test_before_the_first_list_nothing_is_loaded_and_the_reason_is_there() -> None:
    async def work() -> None:
        async with api_server() as server:
            server.refuse = lambda _: status(403, "Forbidden", "pods is forbidden")
            here = Site(server, (8000,))
            async with here.started():
                await here.until(lambda: here.discovery.trouble is not None)
                assert not here.discovery.loaded
                assert "a Role with this rule is missing" in (here.discovery.trouble or "")
                server.refuse = lambda _: None
                await here.shows()
                await here.until(lambda: here.discovery.trouble is None)

    run(work())


def test_without_the_api_server_the_last_endpoints_stay() -> None:
    async def work() -> None:
        async with site(written("a")) as here:
            await here.shows("10.0.0.1:8000")
            here.server.refuse = lambda _: status(500, "InternalError", "etcd is gone")
            await here.server.cut()
            await here.until(lambda: here.discovery.trouble is not None)
            assert here.addresses() == ["10.0.0.1:8000"]
            assert here.gauges()["tierwise_discovery_current"] == 0
            assert here.gauges()["tierwise_discovery_errors"] > 0

    run(work())


@pytest.mark.parametrize("after", [{"uid": "another"}, {"started": "2026-11-22T10:30:00Z"}])
def test_another_engine_at_the_address_begins_with_an_empty_index(after: dict[str, str]) -> None:
    async def work() -> None:
        async with site(written("a")) as here:
            await here.shows("10.0.0.1:8000")
            await here.server.put(written("a", **after))
            await here.until(lambda: len(here.changes.seen) == 3)
            assert here.changes.seen == ["+10.0.0.1:8000", "-10.0.0.1:8000", "+10.0.0.1:8000"]

    run(work())


def test_new_labels_change_the_endpoint_and_keep_its_numbers() -> None:
    async def work() -> None:
        async with site(written("a")) as here:
            await here.shows("10.0.0.1:8000")
            await here.server.put(written("a", labels={"app": "vllm", "role": "decode"}))
            await here.until(lambda: here.pool.candidates()[0].labels.get("role") == "decode")
            assert here.changes.seen == ["+10.0.0.1:8000"]

    run(work())


def test_ports_follow_the_annotation() -> None:
    async def work() -> None:
        async with site(written("a"), ports=(8000, 8001)) as here:
            await here.shows("10.0.0.1:8000", "10.0.0.1:8001")
            await here.server.put(written("a", annotations={ACTIVE: "8001"}))
            await here.shows("10.0.0.1:8001")

    run(work())


def test_of_two_pods_with_one_address_the_younger_has_it_and_one_warning_names_both(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        async with site(written("old"), written("new", created="2026-11-22T10:05:00Z")) as here:
            await here.until(lambda: len(here.pool) == 1)
            assert here.pool.candidates()[0].name == "default/new-rank-0"
            assert here.gauges()["tierwise_discovery_disputed_addresses"] == 1
            await here.server.delete("new")
            await here.until(lambda: here.pool.candidates()[0].name == "default/old-rank-0")
            assert here.gauges()["tierwise_discovery_disputed_addresses"] == 0

    with caplog.at_level(logging.WARNING):
        run(work())
    assert [r.message for r in caplog.records if "youngest" in r.message] == [
        "10.0.0.1:8000 is the address of default/new and default/old: the youngest pod has it"
    ]


def test_a_dispute_that_comes_and_goes_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with site(written("a"), gather_s=3600.0) as here:
            await here.shows("10.0.0.1:8000")
            for ready in ("True", "False") * 3:
                here.keeper.changed(pod("b", ready=ready))
                here.keeper.apply()
            assert here.gauges()["tierwise_discovery_disputed_addresses"] == 0

    run(work())
    assert len([r for r in caplog.records if "youngest" in r.message]) == 1


def test_a_full_pool_takes_an_endpoint_for_one_that_goes_in_the_same_moment() -> None:
    async def work() -> None:
        async with site(written("old", ip="10.0.0.9"), most=1, gather_s=3600.0) as here:
            await here.shows("10.0.0.9:8000")
            here.keeper.changed(pod("new", ip="10.0.0.1"))
            here.keeper.removed(pod("old", ip="10.0.0.9"))
            here.keeper.apply()
            assert here.addresses() == ["10.0.0.1:8000"]
            assert here.gauges()["tierwise_discovery_left_out"] == 0

    run(work())


def test_endpoints_that_stay_left_out_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with site(most=1, gather_s=3600.0) as here:
            await here.shows()
            for n in range(5):
                here.keeper.changed(pod(f"p{n}", ip=f"10.0.0.{n + 1}"))
                here.keeper.apply()

    run(work())
    assert [r.message for r in caplog.records if r.levelno >= logging.ERROR] == [
        "1 endpoint left out: a pool holds at most 1; split the pool"
    ]


def test_a_late_event_of_a_pod_does_not_concern_the_younger_pod_of_its_name() -> None:
    before = pod("vllm-0", uid="first", created="2026-11-22T09:00:00Z", ip="10.0.0.7")

    async def work() -> None:
        async with site(written("vllm-0", uid="second"), gather_s=0.0) as here:
            await here.shows("10.0.0.1:8000")
            here.keeper.removed(before)
            here.keeper.changed(before)
            here.keeper.apply()
            assert here.addresses() == ["10.0.0.1:8000"]
            here.keeper.removed(pod("vllm-0", uid="second"))
            here.keeper.apply()
            assert here.addresses() == []

    run(work())


def test_a_pod_whose_address_cannot_be_used_keeps_no_other_pod_out() -> None:
    async def work() -> None:
        async with site(written("a", ip="of course"), written("b", ip="10.0.0.2")) as here:
            await here.shows("10.0.0.2:8000")
            await here.server.put(written("c", ip="fe80::1%eth0"))
            await here.server.put(written("d", ip="FD00::0:7"))
            await here.shows("10.0.0.2:8000", "[fd00::7]:8000")

    run(work())


def test_what_a_pool_cannot_hold_is_left_out_counted_and_taken_in_when_there_is_room() -> None:
    async def work() -> None:
        async with site(most=90) as here:
            await here.until(lambda: here.server.watches == 1)
            for n in range(100):
                await here.server.put(written(f"p{n}", ip=f"10.0.0.{n + 1}"))
            await here.until(lambda: here.gauges()["tierwise_discovery_left_out"] == 10)
            assert len(here.pool) == 90
            for n in range(20):
                await here.server.delete(f"p{n}")
            await here.until(lambda: len(here.pool) == 80)
            assert here.gauges()["tierwise_discovery_left_out"] == 0

    run(work())
