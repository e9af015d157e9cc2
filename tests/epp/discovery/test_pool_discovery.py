"""Endpoints from an InferencePool that comes, changes and goes, and what is said while there is none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from epp.discovery.cluster import PodDiscovery
from epp.discovery.options import PoolOptions
from epp.discovery.pool_discovery import PoolDiscovery
from epp.discovery.pool_keeper import PoolKeeper
from epp.errors import ConfigError
from epp.kube import backoff
from epp.kube.client import Client
from epp.kube.groups import GROUP, OLD_GROUP
from epp.pool.pool import Pool
from scorers.base import Candidate, Slot
from tests.epp.discovery.following import Following
from tests.epp.discovery.pods import written
from tests.epp.kube.access import TokenAccess
from tests.epp.kube.api_server import ApiServer, Collection, api_server, status

WITHIN = "namespaces/default"
PATHS = {
    "pods": f"/api/v1/{WITHIN}/pods",
    GROUP: f"/apis/{GROUP}/v1/{WITHIN}/inferencepools",
    OLD_GROUP: f"/apis/{OLD_GROUP}/v1alpha2/{WITHIN}/inferencepools",
}


class Removals:
    """Lists the endpoints that a pool removes."""

    def __init__(self, addresses: list[str]) -> None:
        self._addresses = addresses

    def endpoint_added(self, candidate: Candidate) -> None: ...

    def endpoint_removed(self, slot: Slot, address: str) -> None:
        self._addresses.append(address)

    def engine_reported(self, candidate: Candidate) -> None: ...


class Site(Following):
    """An API server with pods and pools, and a picker that follows the pool ``mine``."""

    discovery: PoolDiscovery

    def __init__(self, server: ApiServer, groups: tuple[str, ...], picker: str | None) -> None:
        self.server, self.pool = server, Pool()
        self.removed: list[str] = []
        """The endpoints whose state was dropped."""
        self.pool.listeners.append(Removals(self.removed))
        self.kinds = {name: server.at(path) for name, path in PATHS.items()}
        self.kinds["pods"].by_labels = True
        self.client = Client(TokenAccess(server.url))
        pods = PodDiscovery(self.client, PoolKeeper(self.pool), namespace="default", selected=None)
        options = PoolOptions(name="mine", groups=groups)
        self.discovery = PoolDiscovery(self.client, pods, options, namespace="default", picker=picker)

    @property
    def pods(self) -> Collection:
        return self.kinds["pods"]

    async def put(self, spec: dict[str, Any], group: str = GROUP, **metadata: Any) -> None:
        await self.kinds[group].put({"metadata": {"name": "mine", **metadata}, "spec": spec})

    def used(self) -> str | None:
        """The group and version whose pool is used."""
        used = self.discovery._used
        return None if used is None else used.version

    def gauges(self) -> dict[str, float]:
        return {reading.name: sum(n for _, n in reading.samples) for reading in self.discovery.readings()}

    async def told(self, sentence: str) -> None:
        await self.until(lambda: sentence in (self.discovery.trouble or ""))


@asynccontextmanager
async def site(
    *pods: dict[str, Any], groups: tuple[str, ...] = (GROUP, OLD_GROUP), picker: str | None = None
) -> AsyncIterator[Site]:
    async with api_server() as server:
        here = Site(server, groups, picker)
        for item in pods:
            await here.pods.put(item)
        async with here.started():
            yield here


def v1(label: str = "vllm", *ports: int, **more: Any) -> dict[str, Any]:
    ports_of = [{"number": port} for port in ports or (8000,)]
    return {"selector": {"matchLabels": {"app": label}}, "targetPorts": ports_of, **more}


def old(label: str = "vllm", port: int = 8000) -> dict[str, Any]:
    return {"selector": {"app": label}, "targetPortNumber": port}


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def refusing(server: ApiServer, path: str, answer: web.Response | None) -> None:
    """Answer requests for ``path`` with copies of ``answer``; None ends that."""
    server.refuse = lambda request: (
        web.Response(status=answer.status, body=answer.body, headers={"Content-Type": "application/json"})
        if answer is not None and request.path.startswith(path)
        else None
    )


def test_without_the_pool_nothing_is_loaded_and_the_reason_is_there(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with site(written("a")) as here:
            await here.told(f"default/mine does not exist in {GROUP}/v1 and {OLD_GROUP}/v1alpha2")
            assert not here.discovery.loaded
            assert here.gauges()["tierwise_discovery_loaded"] == 0
            await here.put(v1())
            await here.shows("10.0.0.1:8000")
            assert here.discovery.trouble is None
            assert here.gauges()["tierwise_discovery_loaded"] == here.gauges()["tierwise_discovery_current"] == 1

    run(work())
    assert len([r for r in caplog.records if "does not exist in" in r.message]) == 1


@pytest.mark.parametrize("ending", ["deleted", "deletionTimestamp"])
def test_a_pool_that_goes_takes_its_endpoints_along_and_may_come_back_different(ending: str) -> None:
    async def work() -> None:
        async with site(written("a"), written("b", ip="10.0.0.2", labels={"app": "other"})) as here:
            await here.put(v1())
            await here.shows("10.0.0.1:8000")
            if ending == "deleted":
                await here.kinds[GROUP].delete("mine")
            else:
                await here.put(v1(), deletionTimestamp="2026-11-22T10:00:00Z")
            await here.told("does not exist in" if ending == "deleted" else "is being deleted")
            assert not here.discovery.loaded
            await here.until(lambda: not here.pool.candidates())
            await here.put(v1("other", 8001))
            await here.shows("10.0.0.2:8001")
            assert [one.address for one in here.pool.everyone()] == ["10.0.0.2:8001"]

    run(work())


@pytest.mark.parametrize("gone", ["pool", "definition"])
def test_a_pool_that_is_made_again_has_the_endpoints_that_it_had_with_their_state(gone: str) -> None:
    async def work() -> None:
        async with site(written("a"), written("b", ip="10.0.0.2")) as here:
            await here.put(v1())
            await here.shows("10.0.0.1:8000", "10.0.0.2:8000")
            slots = {one.address: one.slot for one in here.pool.candidates()}
            if gone == "definition":
                refusing(here.server, PATHS[GROUP], status(404, "NotFound", "no such kind"))
                await here.server.cut()
            await here.kinds[GROUP].delete("mine")
            await here.until(lambda: not here.pool.candidates())
            assert here.gauges()["tierwise_discovery_kept_unready"] == 2
            await here.pods.put(written("b", ip="10.0.0.2", started="2026-11-22T11:00:00Z"))
            await here.pods.put(written("c", ip="10.0.0.3"))
            refusing(here.server, PATHS[GROUP], None)
            await here.put(v1(), uid="another")
            await here.shows("10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000")
            by_address = {one.address: one.slot for one in here.pool.candidates()}
            assert by_address["10.0.0.1:8000"] == slots["10.0.0.1:8000"]
            assert here.removed == ["10.0.0.2:8000"]  # its container is another one

    run(work())


def test_new_ports_keep_the_endpoints_that_stay() -> None:
    async def work() -> None:
        async with site(written("a")) as here:
            await here.put(v1("vllm", 8000, 8001))
            await here.shows("10.0.0.1:8000", "10.0.0.1:8001")
            slot = here.pool.candidates()[0].slot
            await here.put(v1("vllm", 8000, 8002))
            await here.shows("10.0.0.1:8000", "10.0.0.1:8002")
            assert here.pool.candidates()[0].slot == slot
            assert here.gauges()["tierwise_discovery_pod_lists"] == 2

    run(work())


def test_a_change_that_cannot_be_used_leaves_what_was_selected_before(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with site(written("a"), groups=(OLD_GROUP,)) as here:
            await here.put({**old(), "selector": {}}, OLD_GROUP)
            await here.told(
                "mine: its selector is empty and would select every pod; write a label into it; there are no"
            )
            assert not here.discovery.loaded
            await here.put(old(), OLD_GROUP)
            await here.shows("10.0.0.1:8000")
            await here.put({**old(), "selector": {}}, OLD_GROUP)
            await here.told("what it selected before stays in use")
            assert here.discovery.loaded
            await here.pods.put(written("b", ip="10.0.0.2"))
            await here.shows("10.0.0.1:8000", "10.0.0.2:8000")

    run(work())
    assert len([r for r in caplog.records if "would select every pod" in r.message]) == 2


def test_a_pool_in_both_groups_is_one_warning_and_the_newer_counts(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with site(written("a")) as here:
            await here.put(v1("vllm", 8001))
            await here.put(old(), OLD_GROUP)
            await here.shows("10.0.0.1:8001")
            await here.until(lambda: any("delete one of them" in r.message for r in caplog.records))
            await here.put(v1("vllm", 8002))
            await here.shows("10.0.0.1:8002")
            await here.kinds[GROUP].delete("mine")
            await here.shows("10.0.0.1:8000")

    run(work())
    assert len([r for r in caplog.records if "delete one of them" in r.message]) == 1


@pytest.mark.parametrize("code", [403, 404])
def test_a_group_that_is_refused_is_not_asked_again_while_the_other_has_the_pool(code: int) -> None:
    async def work() -> None:
        async with site(written("a")) as here:
            refusing(here.server, PATHS[OLD_GROUP], status(code, "Refused", "no"))
            await here.put(v1())
            await here.shows("10.0.0.1:8000")
            assert here.discovery.trouble is None
            _, other = here.discovery._groups
            assert not other.needed.is_set()
            await here.kinds[GROUP].delete("mine")
            await here.until(other.needed.is_set)
            refusing(here.server, PATHS[OLD_GROUP], None)
            await here.put(old(port=8003), OLD_GROUP)
            await here.shows("10.0.0.1:8003")

    run(work())


def test_a_pool_without_the_right_to_its_pods_says_which_rule_is_missing() -> None:
    async def work() -> None:
        async with site(written("a")) as here:
            refusing(here.server, PATHS["pods"], status(403, "Forbidden", 'cannot list resource "pods"'))
            await here.put(v1())
            await here.told("a Role with this rule is missing")
            assert not here.discovery.loaded
            refusing(here.server, PATHS["pods"], None)
            await here.shows("10.0.0.1:8000")

    run(work())


def test_an_outage_leaves_the_endpoints_and_says_how_old_they_are() -> None:
    async def work() -> None:
        async with site(written("a")) as here:
            await here.put(v1())
            await here.shows("10.0.0.1:8000")
            here.server.refuse = lambda _: status(500, "InternalError", "etcd is gone")
            await here.server.cut()
            await here.told("etcd is gone")
            gauges = here.gauges()
            assert here.discovery.loaded
            assert here.addresses() == ["10.0.0.1:8000"]
            assert (gauges["tierwise_discovery_loaded"], gauges["tierwise_discovery_current"]) == (1, 0)
            assert gauges["tierwise_discovery_errors"] > 0
            await here.until(
                lambda: here.gauges()["tierwise_discovery_age_seconds"] > gauges["tierwise_discovery_age_seconds"]
            )
            here.server.refuse = lambda _: None
            await here.until(lambda: here.discovery.trouble is None)

    run(work())


@pytest.mark.parametrize(("picker", "warnings"), [("mine-epp", 0), ("other-epp", 1), (None, 0)])
def test_a_pool_whose_gateways_ask_another_picker_is_a_warning(
    picker: str | None, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with site(written("a"), picker=picker) as here:
            ref = {"name": "mine-epp", "port": {"number": 9002}}
            await here.put(v1(endpointPickerRef=ref))
            await here.shows("10.0.0.1:8000")
            await here.put(v1("vllm", 8001, endpointPickerRef=ref))
            await here.shows("10.0.0.1:8001")

    run(work())
    assert len([r for r in caplog.records if "has gateways ask the Service mine-epp" in r.message]) == warnings


@pytest.mark.parametrize("name", ["My_Pool", "a,b", "-a", "x" * 254, "a/b"])
def test_a_name_that_no_pool_has_is_refused(name: str) -> None:
    async def work() -> None:
        async with api_server() as server:
            client = Client(TokenAccess(server.url))
            pods = PodDiscovery(client, PoolKeeper(Pool()), namespace="default", selected=None)
            discovery = PoolDiscovery(client, pods, PoolOptions(name=name, groups=(GROUP,)), namespace="default")
            with pytest.raises(ConfigError, match="is not the name of an object"):
                await discovery.start()

    run(work())


@asynccontextmanager
async def without_the_newer_definition() -> AsyncIterator[Site]:
    """A picker that follows a pool of the older group, at an API server that does not know the newer one."""
    async with site(written("a")) as here:
        refusing(here.server, PATHS[GROUP], status(404, "NotFound", "no such kind"))
        await here.put(old(port=8003), OLD_GROUP)
        await here.shows("10.0.0.1:8003")
        yield here


def test_a_pool_of_the_newer_group_is_used_when_its_definition_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "LONGEST_WAIT_S", 0.02)

    async def work() -> None:
        async with without_the_newer_definition() as here:
            refusing(here.server, PATHS[GROUP], None)
            await here.put(v1("vllm", 8001))
            await here.shows("10.0.0.1:8001")

    run(work())


def test_an_outage_after_the_newer_group_was_not_found_leaves_the_endpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "LONGEST_WAIT_S", 0.02)

    async def work() -> None:
        async with without_the_newer_definition() as here:
            errors = here.gauges()["tierwise_discovery_errors"]
            newer, _ = here.discovery._groups
            here.server.refuse = lambda _: status(500, "InternalError", "etcd is gone")
            await here.until(lambda: "etcd" in (newer.follower.trouble or ""))
            assert here.addresses() == ["10.0.0.1:8003"]
            assert here.discovery.loaded
            assert here.gauges()["tierwise_discovery_errors"] > errors

    run(work())


def test_a_definition_that_is_not_there_is_no_error_in_the_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "LONGEST_WAIT_S", 0.02)

    async def work() -> None:
        async with without_the_newer_definition() as here:
            asked = len(here.server.requests)
            await here.until(lambda: len(here.server.requests) > asked + 3)
            assert here.gauges()["tierwise_discovery_errors"] == 0

    run(work())


LABELS = st.sampled_from(["vllm", "other"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("v1"), LABELS, st.sampled_from([(8000,), (8001, 8000), (8001,)])),
        st.tuples(st.just("old"), st.sampled_from(["vllm", "other", ""]), st.sampled_from([8000, 8001])),
        st.tuples(st.just("no pool"), st.sampled_from([GROUP, OLD_GROUP]), st.none()),
        st.tuples(st.just("pod"), st.sampled_from(["a-vllm", "b-vllm", "c-other"]), st.sampled_from(["True", "False"])),
        st.tuples(st.just("no pod"), st.sampled_from(["a-vllm", "b-vllm", "c-other"]), st.none()),
        st.tuples(st.just("cut"), st.none(), st.none()),
    ),
    max_size=12,
)


@settings(max_examples=25, deadline=None)
@given(STEPS)
def test_whatever_happens_the_endpoints_are_those_of_a_new_computation(steps: list[tuple[str, Any, Any]]) -> None:
    def expected(here: Site, before: tuple[str, tuple[int, ...]] | None) -> tuple[str, tuple[int, ...]] | None:
        """Return the label and the ports that are selected now, if ``before`` they were those."""
        new, older = here.kinds[GROUP].objects.get("mine"), here.kinds[OLD_GROUP].objects.get("mine")
        if new is not None:
            ports = tuple(port["number"] for port in new["spec"]["targetPorts"])
            return new["spec"]["selector"]["matchLabels"]["app"], ports
        if older is not None:
            label = older["spec"]["selector"].get("app")
            return (label, (older["spec"]["targetPortNumber"],)) if label else before
        return None

    async def work() -> None:
        async with site() as here:
            now = None
            for what, one, other in steps:
                if what == "v1":
                    await here.put(v1(one, *other))
                elif what == "old":
                    await here.put(old(one, other) if one else {**old(), "selector": {}}, OLD_GROUP)
                elif what == "no pool" and "mine" in here.kinds[one].objects:
                    await here.kinds[one].delete("mine")
                elif what == "pod":
                    ip = f"10.0.0.{'abc'.index(one[0]) + 1}"
                    await here.pods.put(written(one, ip=ip, ready=other, labels={"app": one[2:]}))
                elif what == "no pod" and one in here.pods.objects:
                    await here.pods.delete(one)
                elif what == "cut":
                    await here.server.cut()
                now = expected(here, now)
                addresses = sorted(
                    f"{item['status']['podIP']}:{port}"
                    for item in here.pods.objects.values()
                    for port in (now[1] if now else ())
                    if item["metadata"]["labels"]["app"] == (now[0] if now else None)
                    and item["status"]["conditions"][1]["status"] == "True"
                )
                loaded = now is not None
                await here.until(lambda a=addresses, b=loaded: here.addresses() == a and here.discovery.loaded == b)  # type: ignore[misc]

    run(work())


BOTH = st.sampled_from([GROUP, OLD_GROUP])
WINDOWS = st.lists(
    st.tuples(
        st.one_of(
            st.tuples(st.just("put"), BOTH, st.sampled_from([("vllm", 8000), ("vllm", 8001), ("other", 8001)])),
            st.tuples(st.sampled_from(["delete", "define", "undefine"]), BOTH, st.none()),
            st.tuples(st.sampled_from(["forbid", "allow", "cut"]), st.just(GROUP), st.none()),
        ),
        st.booleans(),  # whether the next step waits until the picker has seen this one
    ),
    max_size=14,
)


class Windows:
    """A naive picture of a picker: what it knows of each group, from what the API server has and refuses."""

    def __init__(self, here: Site) -> None:
        self.here = here
        self.refused: dict[str, int] = {}
        self.known: dict[str, tuple[str, int] | None] = {GROUP: None, OLD_GROUP: None}
        self.there: dict[str, tuple[str, int] | None] = {GROUP: None, OLD_GROUP: None}

    async def step(self, what: str, group: str, spec: tuple[str, int] | None) -> None:
        defined = self.refused.get(group) != 404
        if what == "put" and spec is not None and defined:
            self.there[group] = spec
            await self.here.put(v1(*spec) if group == GROUP else old(*spec), group)
        elif (what == "delete" or (what == "undefine" and defined)) and self.there[group] is not None:
            self.there[group] = None
            await self.here.kinds[group].delete("mine")
        changes = {
            "undefine": {**self.refused, group: 404},
            "define": {name: code for name, code in self.refused.items() if (name, code) != (group, 404)},
            "forbid": self.refused if group in self.refused else {**self.refused, group: 403},
            "allow": {name: code for name, code in self.refused.items() if code != 403},
        }
        if what in changes:
            self.refused = changes[what]
            self.here.server.refuse = self._answer
        if what in (*changes, "cut"):
            await self.here.server.cut()

    def _answer(self, request: web.Request) -> web.Response | None:
        code = next((code for group, code in self.refused.items() if request.path.startswith(PATHS[group])), None)
        return None if code is None else status(code, "Refused", "no")

    async def seen(self) -> None:
        """Wait until the picker has what it should have."""
        for group, code in [(group, self.refused.get(group)) for group in self.known]:
            if code != 403:  # what was read before stays known
                self.known[group] = self.there[group] if code is None else None
        group, spec = next(((group, spec) for group, spec in self.known.items() if spec is not None), (None, None))
        addresses = [f"10.0.0.{'vo'.index(spec[0][0]) + 1}:{spec[1]}"] if spec is not None else []
        await self.here.until(
            lambda: (
                self.here.addresses() == addresses
                and self.here.discovery.loaded == (spec is not None)
                and (group is None or f"{group}/" in str(self.here.used()))
            )
        )


@settings(max_examples=30, deadline=None)
@given(WINDOWS)
def test_definitions_and_rights_that_come_and_go_between_requests_leave_the_pool_of_a_naive_picture(
    steps: list[tuple[tuple[str, str, tuple[str, int] | None], bool]],
) -> None:
    async def work() -> None:
        async with site(written("a"), written("b", ip="10.0.0.2", labels={"app": "other"})) as here:
            windows = Windows(here)
            for (what, group, spec), settled in steps:
                if what == "forbid":  # what is known from now on must not depend on how quick the picker was
                    await windows.seen()
                await windows.step(what, group, spec)
                if settled:
                    await windows.seen()
                else:
                    await asyncio.sleep(0)
            await windows.seen()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backoff, "LONGEST_WAIT_S", 0.02)
        run(work())
