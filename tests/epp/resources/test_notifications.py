"""Plugins learn from objects of the Kubernetes API: of each change, and of what went unnoticed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from epp.config.plan import Notification
from epp.kube import served
from epp.kube.client import Client
from epp.resources.notifications import Notifications
from scorers.base import Extractor, NoParameters
from tests.epp.kube.access import TokenAccess
from tests.epp.kube.api_server import ApiServer, api_server, status

PATIENCE_S = 20
PODS, NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"
SERVED = [
    {"name": "pods", "kind": "Pod", "namespaced": True},
    {"name": "pods/status", "kind": "Pod", "namespaced": True},
    {"name": "nodes", "kind": "Node", "namespaced": False},
]


class Learner(Extractor[NoParameters]):
    """Keeps the objects that it is given."""

    type_name = "learner"

    def __init__(self, parameters: NoParameters | None = None, name: str = "", *, fails: bool = False) -> None:
        super().__init__(parameters, name)
        self.objects: dict[str, Mapping[str, Any]] = {}
        self.fails = fails

    def changed(self, item: Mapping[str, Any]) -> None:
        if self.fails:
            raise ValueError("no")
        self.objects[f"{item['apiVersion']} {item['kind']} {item['metadata']['name']}"] = item

    def removed(self, item: Mapping[str, Any]) -> None:
        self.objects.pop(f"{item['apiVersion']} {item['kind']} {item['metadata']['name']}", None)


class Site:
    def __init__(self, server: ApiServer, *wanted: Notification) -> None:
        self.server, self.served = server, list(SERVED)
        self.refuse: Callable[[web.Request], web.Response | None] = lambda _: None
        server.refuse = self._answer
        self.pods, self.nodes = server.at(PODS), server.at(NODES)
        self.client = Client(TokenAccess(server.url))
        self.part = Notifications(self.client, wanted, namespace="default", random=random.random)

    def _answer(self, request: web.Request) -> web.Response | None:
        if (refused := self.refuse(request)) is not None:
            return refused
        return web.json_response({"resources": self.served}) if request.path == "/api/v1" else None

    def gauge(self, name: str, *labels: str) -> float:
        return {one.name: dict(one.samples) for one in self.part.readings()}[f"tierwise_notification_{name}"][labels]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 - a socket announces nothing
                await asyncio.sleep(0.002)


@asynccontextmanager
async def site(*wanted: Notification) -> AsyncIterator[Site]:
    async with api_server() as server:
        here = Site(server, *wanted)
        async with here.client:
            await here.part.start()
            try:
                yield here
            finally:
                await here.part.stop()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "LOOK_AGAIN_S", (0.01, 0.02))


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def of(kind: str, *extractors: Extractor[Any]) -> Notification:
    return Notification("dataLayer.sources[0]", "", "v1", kind, extractors)


def item(name: str, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, **fields}


def test_every_plugin_that_is_bound_learns_of_every_change_with_all_fields() -> None:
    async def work() -> None:
        both, nodes = Learner(name="both"), Learner(name="nodes")
        async with site(of("Pod", both), of("Node", nodes, both)) as here:
            await here.pods.put(item("a", spec={"nodeName": "n", "anything": [1, None, {"x": "y"}]}))
            await here.nodes.put(item("n", status={"capacity": {"cpu": "8"}}))
            await here.until(lambda: set(both.objects) == {"v1 Pod a", "v1 Node n"} and len(nodes.objects) == 1)
            assert both.objects["v1 Pod a"]["spec"] == {"nodeName": "n", "anything": [1, None, {"x": "y"}]}
            await here.pods.put(item("a", spec={}))
            await here.until(lambda: both.objects["v1 Pod a"]["spec"] == {})
            await here.pods.delete("a")
            await here.until(lambda: set(both.objects) == {"v1 Node n"})
            assert here.gauge("objects", "", "v1", "Node") == here.gauge("current", "", "v1", "Node") == 1
            assert here.part.trouble is None

    run(work())


def test_what_happened_unnoticed_is_made_up_for() -> None:
    async def work() -> None:
        learner = Learner()
        async with site(of("Pod", learner)) as here:
            await here.pods.put(item("a"))
            await here.pods.put(item("b"))
            await here.until(lambda: len(learner.objects) == 2)
            here.refuse = lambda _: status(503, "Unavailable", "soon")
            await here.server.cut()
            await here.until(lambda: here.part.trouble is not None)
            await here.pods.delete("a")
            await here.pods.put(item("c"))
            await here.pods.compact()
            here.refuse = lambda _: None
            await here.until(lambda: set(learner.objects) == {"v1 Pod b", "v1 Pod c"})

    run(work())


def test_a_plugin_that_fails_is_counted_and_keeps_nothing_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        bad, good = Learner(name="bad", fails=True), Learner(name="good")
        async with site(of("Pod", bad, good)) as here:
            for name in "abc":
                await here.pods.put(item(name))
            await here.until(lambda: len(good.objects) == 3)
            assert here.gauge("failures", "bad") == 3

    run(work())
    assert sum("failed at an object of Pod" in message for message in caplog.messages) == 1


def test_a_kind_without_the_right_to_read_it_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        learner = Learner()
        async with site(of("Node", learner)) as here:
            here.refuse = lambda r: status(403, "Forbidden", "nodes is forbidden") if r.path == NODES else None
            await here.server.cut()
            await here.until(lambda: "learner may be out of date" in (here.part.trouble or ""))
            assert "a Role with this rule is missing" in (here.part.trouble or "")
            here.refuse = lambda _: None
            await here.nodes.put(item("n"))
            await here.until(lambda: len(learner.objects) == 1)
            await here.until(lambda: here.part.trouble is None)

    run(work())
    assert sum("nodes is forbidden" in message for message in caplog.messages) == 1


def test_a_kind_that_is_not_there_is_one_warning_and_used_once_it_is(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        learner = Learner()
        async with site(of("Rack", learner)) as here:
            await here.until(lambda: here.part.trouble is not None)
            assert here.part.trouble == "the API server has no Rack of v1, from which learner would learn"
            racks = here.server.at("/api/v1/namespaces/default/racks")
            await racks.put(item("r"))
            here.served.append({"name": "racks", "kind": "Rack", "namespaced": True})
            await here.until(lambda: set(learner.objects) == {"v1 Rack r"})

    run(work())
    assert sum("the API server has no Rack of v1" in message for message in caplog.messages) == 1
