"""Endpoints from the pods of a real API server."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from epp.discovery.cluster import PodDiscovery
from epp.discovery.options import PodOptions
from epp.discovery.pool_keeper import PoolKeeper
from epp.kube.access import HOST, PORT, InCluster
from epp.kube.client import ANSWER_S, SILENT_S, Client
from epp.kube.follow import PAGE
from epp.pool.pool import Pool
from epp.ports.tls import self_signed
from tests.cluster.control_plane import ControlPlane
from tests.cluster.relay import relayed
from tests.epp.discovery.following import Following
from tests.epp.discovery.pods import ACTIVE, written

READ_PODS = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
NAMES = itertools.count()


class Site(Following):
    """A namespace, a service account that may read its pods, and a pool that follows them."""

    def __init__(
        self, plane: ControlPlane, folder: Path, *, page: int = PAGE, port: int = 0, silent_s: float = SILENT_S
    ) -> None:
        self.plane, self.namespace, self.pool = plane, f"n{next(NAMES)}", Pool()
        plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        (folder / "token").write_text(plane.token_for(self.namespace, "picker"))
        (folder / "ca.crt").write_bytes(plane.authority.read_bytes())
        access = InCluster({HOST: "127.0.0.1", PORT: str(port or plane.port)}, folder)
        self.client = Client(access, silent_s=silent_s, answer_s=min(ANSWER_S, silent_s))
        selected = PodOptions(selector="app in (vllm),!canary", ports=(8000, 8001))
        self.discovery = PodDiscovery(
            self.client, PoolKeeper(self.pool), namespace=self.namespace, selected=selected, page=page
        )

    def put(self, name: str, **fields: Any) -> None:
        pod = written(name, **fields)
        pod["metadata"]["namespace"] = self.namespace
        self.plane.put_pod(pod)


@asynccontextmanager
async def following(plane: ControlPlane, folder: Path, *, allowed: bool = True) -> AsyncIterator[Site]:
    here = Site(plane, folder)
    if allowed:
        plane.allow(here.namespace, "picker", READ_PODS)
    async with here.started():
        yield here


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_pods_come_change_and_go(plane: ControlPlane, tmp_path: Path) -> None:
    async def work() -> None:
        async with following(plane, tmp_path) as here:
            await here.shows()
            here.put("a", annotations={ACTIVE: "8000"})
            here.put("b", ip="10.0.0.2", ready="False", annotations={ACTIVE: "8001"})
            here.put("c", ip="10.0.0.3", labels={"app": "other"})
            await here.shows("10.0.0.1:8000")
            plane.set_status(here.namespace, "b", {"conditions": [{"type": "Ready", "status": "True"}]})
            await here.shows("10.0.0.1:8000", "10.0.0.2:8001")
            path = f"/api/v1/namespaces/{here.namespace}/pods/b"
            plane.request("PATCH", path, {"metadata": {"labels": {"canary": "yes"}}}, "application/merge-patch+json")
            await here.shows("10.0.0.1:8000")
            here.plane.delete_pod(here.namespace, "a")
            await here.shows()

    run(work())


def test_a_watch_that_hangs_is_given_up_and_what_it_missed_is_found(plane: ControlPlane, tmp_path: Path) -> None:
    async def work() -> None:
        async with relayed(plane.port) as (relay, port):
            here = Site(plane, tmp_path, port=port, silent_s=2.0)
            plane.allow(here.namespace, "picker", READ_PODS)
            here.put("a", annotations={ACTIVE: "8000"})
            async with here.started():
                await here.shows("10.0.0.1:8000")
                before = sockets()
                relay.hang()
                here.put("b", ip="10.0.0.2", annotations={ACTIVE: "8000"})
                here.plane.delete_pod(here.namespace, "a")
                opened = relay.connections
                await here.until(lambda: relay.connections > opened)  # it has given up, and hangs once more
                await here.shows("10.0.0.1:8000")
                relay.forward_new()
                await here.shows("10.0.0.2:8000")
                await here.until(lambda: sockets() <= before)

    run(work())


def sockets() -> int:
    """Return how many sockets this process has."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed since
            found += str(descriptor.readlink()).startswith("socket:")
    return found


def test_a_list_of_many_pods_comes_in_pages(plane: ControlPlane, tmp_path: Path) -> None:
    async def work() -> None:
        here = Site(plane, tmp_path, page=7)
        plane.allow(here.namespace, "picker", READ_PODS)
        for n in range(30):
            here.put(f"p{n}", ip=f"10.0.0.{n + 1}", annotations={ACTIVE: "8000"})
        async with here.started():
            await here.until(lambda: len(here.pool) == 30)

    run(work())


def test_a_role_that_is_missing_is_named_and_used_once_it_is_there(plane: ControlPlane, tmp_path: Path) -> None:
    async def work() -> None:
        async with following(plane, tmp_path, allowed=False) as here:
            await here.until(lambda: here.discovery.trouble is not None)
            trouble = here.discovery.trouble or ""
            assert 'cannot list resource "pods"' in trouble
            assert "a Role with this rule is missing" in trouble
            assert not here.discovery.loaded
            plane.allow(here.namespace, "picker", READ_PODS)
            here.put("a", annotations={ACTIVE: "8000"})
            await here.shows("10.0.0.1:8000")

    run(work())


def test_a_wrong_token_and_a_wrong_authority_are_named(plane: ControlPlane, tmp_path: Path) -> None:
    async def work() -> None:
        here = Site(plane, tmp_path)
        plane.allow(here.namespace, "picker", READ_PODS)
        token, authority = (tmp_path / "token").read_text(), (tmp_path / "ca.crt").read_bytes()
        (tmp_path / "token").write_text("nonsense")
        async with here.started():
            await here.until(lambda: "401" in (here.discovery.trouble or ""))
            (tmp_path / "token").write_text(token)
            await here.until(lambda: here.discovery.loaded)
            await here.until(lambda: here.discovery.trouble is None)

        other = Site(plane, tmp_path)
        (tmp_path / "ca.crt").write_bytes(self_signed()[0])
        async with other.started():
            await other.until(lambda: "not trusted" in (other.discovery.trouble or ""))
            (tmp_path / "ca.crt").write_bytes(authority)
            plane.allow(other.namespace, "picker", READ_PODS)
            await other.until(lambda: other.discovery.loaded)

    run(work())


def test_an_api_server_that_was_killed_and_compacted_loses_no_change(plane: ControlPlane, tmp_path: Path) -> None:
    async def work() -> None:
        async with following(plane, tmp_path) as here:
            here.put("a", annotations={ACTIVE: "8000"})
            here.put("b", ip="10.0.0.2", annotations={ACTIVE: "8000"})
            await here.shows("10.0.0.1:8000", "10.0.0.2:8000")
            plane.kill("kube-apiserver")
            await here.until(lambda: here.discovery.trouble is not None)
            assert here.addresses() == ["10.0.0.1:8000", "10.0.0.2:8000"]
            plane.start_api_server()
            plane.delete_pod(here.namespace, "a")
            here.put("c", ip="10.0.0.3", annotations={ACTIVE: "8000"})
            plane.compact()
            await here.shows("10.0.0.2:8000", "10.0.0.3:8000")
            await here.until(lambda: here.discovery.trouble is None)

    run(work())


def test_pods_that_cannot_be_endpoints_are_left_out_and_odd_ones_are_read(plane: ControlPlane, tmp_path: Path) -> None:
    longest = f"{'a' * 63}.{'b' * 63}.{'c' * 63}.{'d' * 61}/{'e' * 63}"
    labels = {"app": "vllm", longest: "v" * 63, "empty": ""}

    async def work() -> None:
        async with following(plane, tmp_path) as here:
            await here.shows()
            here.put("no-address", ip="", annotations={ACTIVE: "8000"})
            here.put("ended", ip="10.0.0.2", phase="Succeeded")
            here.put("failed", ip="10.0.0.3", phase="Failed")
            here.put("negative", ip="10.0.0.4", annotations={ACTIVE: "-8000,8000.5,,x,99999999999999999999"})
            here.put("foreign", ip="10.0.0.5", annotations={ACTIVE: "9999, 8001"})
            here.put("large", ip="10.0.0.6", annotations={"text": "x" * 100_000, ACTIVE: "8000"}, labels=labels)
            here.put("six", ip="fd00::7", annotations={ACTIVE: "8000"})
            await here.shows("10.0.0.5:8001", "10.0.0.6:8000", "[fd00::7]:8000")
            (large,) = [c for c in here.pool.candidates() if c.address == "10.0.0.6:8000"]
            assert large.labels == labels

    run(work())


def test_a_pod_that_flaps_keeps_its_endpoint_and_a_container_that_restarts_does_not(
    plane: ControlPlane, tmp_path: Path
) -> None:
    def ready(state: str) -> dict[str, Any]:
        return {"conditions": [{"type": "Ready", "status": state}]}

    async def work() -> None:
        async with following(plane, tmp_path) as here:
            here.put("a", annotations={ACTIVE: "8000"})
            await here.shows("10.0.0.1:8000")
            before = here.pool.endpoint("10.0.0.1:8000")
            plane.set_status(here.namespace, "a", ready("False"))
            await here.shows()
            assert [c.address for c in here.pool.everyone()] == ["10.0.0.1:8000"]
            plane.set_status(here.namespace, "a", ready("True"))
            await here.shows("10.0.0.1:8000")
            assert here.pool.endpoint("10.0.0.1:8000") == before
            again = {"name": "vllm", "state": {"running": {"startedAt": "2026-11-22T12:00:00Z"}}, "image": "vllm",
                     "imageID": "", "ready": True, "restartCount": 1}  # fmt: skip
            plane.set_status(here.namespace, "a", {"containerStatuses": [again]})
            await here.until(lambda: here.pool.endpoint("10.0.0.1:8000") not in (before, None))
            plane.set_status(here.namespace, "a", ready("False"))
            await here.shows()
            plane.delete_pod(here.namespace, "a")
            await here.until(lambda: not here.pool.everyone())

    run(work())
