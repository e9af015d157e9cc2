"""Endpoints from InferencePools of both groups, on a real API server with their definitions."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from epp.discovery.cluster import PodDiscovery
from epp.discovery.options import PoolOptions
from epp.discovery.pool_discovery import PoolDiscovery
from epp.discovery.pool_keeper import PoolKeeper
from epp.kube.access import HOST, PORT, InCluster
from epp.kube.client import Client
from epp.kube.groups import GROUP, OLD_GROUP, VERSIONS
from epp.pool.pool import Pool
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import DEFINITIONS, install
from tests.epp.discovery.following import Following
from tests.epp.discovery.pods import written

NAMES = itertools.count()
VERBS = ["get", "list", "watch"]
READ_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": VERBS}
READ_POOLS = {"apiGroups": [GROUP, OLD_GROUP], "resources": ["inferencepools"], "verbs": VERBS}
READ_V1 = {**READ_POOLS, "apiGroups": [GROUP]}
READ_OLD = {**READ_POOLS, "apiGroups": [OLD_GROUP]}
POOL = "inferencepools"


@pytest.fixture(scope="module")
def plane(plane: ControlPlane) -> ControlPlane:
    install(plane, "inference-v1.2.0", kinds=("InferencePool",))
    return plane


class Site(Following):
    """A namespace with a pool of its own, and a picker that may read it."""

    discovery: PoolDiscovery

    def __init__(self, plane: ControlPlane, folder: Path, groups: tuple[str, ...]) -> None:
        self.plane, self.namespace, self.pool = plane, f"p{next(NAMES)}", Pool()
        plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        (folder / "token").write_text(plane.token_for(self.namespace, "picker"))
        (folder / "ca.crt").write_bytes(plane.authority.read_bytes())
        self.client = Client(InCluster({HOST: "127.0.0.1", PORT: str(plane.port)}, folder))
        pods = PodDiscovery(self.client, PoolKeeper(self.pool), namespace=self.namespace, selected=None)
        options = PoolOptions(name="pool", groups=groups)
        self.discovery = PoolDiscovery(self.client, pods, options, namespace=self.namespace, picker="pool-epp")

    def put(self, name: str, **fields: Any) -> None:
        pod = written(name, **fields)
        pod["metadata"]["namespace"] = self.namespace
        self.plane.put_pod(pod)

    def apply(self, spec: dict[str, Any], group: str = GROUP) -> None:
        path = f"{self.pools(group)}/pool?fieldManager=test&force=true"
        version = f"{group}/{VERSIONS[group]}"
        pool = {"apiVersion": version, "kind": "InferencePool", "metadata": {"name": "pool"}, "spec": spec}
        self.plane.request("PATCH", path, pool, "application/apply-patch+yaml")

    def delete(self, group: str = GROUP) -> None:
        self.plane.request("DELETE", f"{self.pools(group)}/pool")

    def pools(self, group: str) -> str:
        return f"/apis/{group}/{VERSIONS[group]}/namespaces/{self.namespace}/{POOL}"


@asynccontextmanager
async def following(
    plane: ControlPlane, folder: Path, *rules: dict[str, Any], groups: tuple[str, ...] = (GROUP, OLD_GROUP)
) -> AsyncIterator[Site]:
    here = Site(plane, folder, groups)
    plane.allow(here.namespace, "picker", list(rules) or [READ_PODS, READ_POOLS])
    async with here.started():
        yield here


def v1(label: str = "vllm", *ports: int, service: str = "pool-epp") -> dict[str, Any]:
    return {
        "selector": {"matchLabels": {"app": label}},
        "targetPorts": [{"number": port} for port in ports or (8000,)],
        "endpointPickerRef": {"name": service, "port": {"number": 9002}},
    }


def old(label: str = "vllm", port: int = 8000) -> dict[str, Any]:
    return {"selector": {"app": label}, "targetPortNumber": port, "extensionRef": {"name": "pool-epp"}}


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_a_pool_through_every_change(plane: ControlPlane, tmp_path: Path) -> None:
    async def work() -> None:
        async with following(plane, tmp_path) as here:
            here.put("a")
            here.put("b", ip="10.0.0.2", labels={"app": "other"})
            await here.until(lambda: "does not exist in" in (here.discovery.trouble or ""))
            assert not here.discovery.loaded
            here.apply(v1("vllm", 8000))
            await here.shows("10.0.0.1:8000")
            assert here.discovery.trouble is None
            here.apply(v1("vllm", 8000, 8001))
            await here.shows("10.0.0.1:8000", "10.0.0.1:8001")
            here.apply(v1("other", 8001))
            await here.shows("10.0.0.2:8001")
            here.put("c", ip="10.0.0.3", labels={"app": "other"})
            await here.shows("10.0.0.2:8001", "10.0.0.3:8001")
            slots = {one.address: one.slot for one in here.pool.candidates()}
            here.delete()
            await here.until(lambda: not here.discovery.loaded)
            assert "does not exist in" in (here.discovery.trouble or "")
            await here.until(lambda: here.addresses() == [])
            here.apply(v1("other", 8001))  # as it was: its endpoints have their state
            await here.shows("10.0.0.2:8001", "10.0.0.3:8001")
            assert {one.address: one.slot for one in here.pool.candidates()} == slots
            here.apply(v1("vllm", 8002))
            await here.shows("10.0.0.1:8002")

    run(work())


def test_a_pool_of_the_older_group_is_found(plane: ControlPlane, tmp_path: Path) -> None:
    async def work() -> None:
        async with following(plane, tmp_path) as here:
            here.put("a")
            here.apply(old(port=8003), OLD_GROUP)
            await here.shows("10.0.0.1:8003")
            assert here.discovery.current is not None
            assert here.discovery.current.app_protocol is None
            here.delete(OLD_GROUP)
            await here.until(lambda: not here.discovery.loaded)

    run(work())


@pytest.mark.parametrize(("rule", "group", "spec"), [(READ_V1, GROUP, v1()), (READ_OLD, OLD_GROUP, old())])
def test_a_picker_that_may_read_one_group_needs_no_other(
    plane: ControlPlane, tmp_path: Path, rule: dict[str, Any], group: str, spec: dict[str, Any]
) -> None:
    async def work() -> None:
        async with following(plane, tmp_path, READ_PODS, rule) as here:
            here.put("a")
            here.apply(spec, group)
            await here.shows("10.0.0.1:8000")
            assert here.discovery.trouble is None

    run(work())


def test_of_two_pools_of_one_name_that_of_the_newer_group_is_used(
    plane: ControlPlane, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with following(plane, tmp_path) as here:
            here.put("a")
            here.apply(old(port=8003), OLD_GROUP)
            await here.shows("10.0.0.1:8003")
            here.apply(v1("vllm", 8001))
            await here.shows("10.0.0.1:8001")
            here.delete()
            await here.shows("10.0.0.1:8003")

    run(work())
    (warning,) = [r.message for r in caplog.records if "delete one of them" in r.message]
    assert f"pool is in {GROUP}/v1 and {OLD_GROUP}/v1alpha2: that of {GROUP}/v1 is used" in warning


def test_the_old_group_accepts_an_empty_selector_and_the_picker_does_not(plane: ControlPlane, tmp_path: Path) -> None:
    async def work() -> None:
        async with following(plane, tmp_path, groups=(OLD_GROUP,)) as here:
            here.put("a")
            here.apply({**old(), "selector": {}}, OLD_GROUP)
            await here.until(lambda: "would select every pod" in (here.discovery.trouble or ""))
            assert not here.discovery.loaded
            here.apply(old(), OLD_GROUP)
            await here.shows("10.0.0.1:8000")
            assert here.discovery.trouble is None

    run(work())


def test_without_the_right_to_read_pools_the_missing_rule_is_named(plane: ControlPlane, tmp_path: Path) -> None:
    async def work() -> None:
        async with following(plane, tmp_path, READ_PODS) as here:
            here.put("a")
            here.apply(v1())
            await here.until(lambda: "a Role with this rule is missing" in (here.discovery.trouble or ""))
            assert 'in API group "inference.networking.k8s.io"' in (here.discovery.trouble or "")
            here.plane.request(
                "PATCH", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{here.namespace}/roles/picker",
                {"rules": [READ_PODS, READ_V1]}, "application/merge-patch+json",
            )  # fmt: skip
            await here.shows("10.0.0.1:8000")

    run(work())


def test_a_definition_that_is_installed_later_is_seen(plane: ControlPlane, tmp_path: Path) -> None:
    async def work() -> None:
        plane.request("DELETE", f"{DEFINITIONS}/inferencepools.{OLD_GROUP}")
        plane.request("DELETE", f"{DEFINITIONS}/inferencepools.{GROUP}")
        async with following(plane, tmp_path) as here:
            here.put("a")
            await here.until(lambda: "its definition is not installed" in (here.discovery.trouble or ""))
            install(plane, "inference-v1.5.0", kinds=("InferencePool",))
            here.apply({**v1(), "appProtocol": "kubernetes.io/h2c"})
            await here.shows("10.0.0.1:8000")
            assert here.discovery.current is not None
            assert here.discovery.current.app_protocol == "kubernetes.io/h2c"
        install(plane, "inference-v1.2.0", kinds=("InferencePool",))

    run(work())
