"""The objects of a pool at an API server of the tests, and the part of a picker that follows them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from epp.kube.client import Client
from epp.kube.objects_inference import GROUPS, OBJECTIVE, PLURALS, REWRITE, VERSION
from epp.picking.model_rewrites import Rule
from epp.resources.custom_resources import CustomResources
from epp.resources.status_writer import StatusWriter
from tests.epp.kube.access import TokenAccess
from tests.epp.kube.api_server import ApiServer, Collection, api_server
from tests.epp.resources.objects import POOL

PATIENCE_S = 20


class Decided:
    """What requests are decided with, as the part changes it."""

    def __init__(self) -> None:
        self.configured_objectives: set[str] = set()
        self.configured_models: set[str | None] = set()
        self.priorities: dict[str, int] = {}
        self.rules: dict[str | None, Rule] = {}
        self.staged: dict[str | None, Rule] = {}
        self.steps = 0

    def change_objectives(self, priorities: Mapping[str, int | None]) -> None:
        self.priorities = {k: v for k, v in {**self.priorities, **priorities}.items() if v is not None}
        self.steps += 1

    def stage_rewrites(self, rules: Mapping[str | None, Rule | None]) -> Iterator[None]:
        self.staged = {k: v for k, v in {**self.rules, **rules}.items() if v is not None}
        return iter([None] * len(rules))

    def change_rewrites(self) -> Iterator[None]:
        self.rules = self.staged
        self.steps += 1
        return iter(())


def list_path(kind: str, group: int = 0) -> str:
    return f"/apis/{GROUPS[group]}/{VERSION}/namespaces/default/{PLURALS[kind]}"


class Site:
    """An API server that serves the two kinds in the groups of ``installed``, and the part that follows them."""

    def __init__(self, server: ApiServer, *installed: int, **settings: Any) -> None:
        self.server, self.installed, self.decided = server, set(installed), Decided()
        self.refuse: Callable[[web.Request], web.Response | None] = lambda _: None
        server.refuse = self._answer
        for group in (0, 1):
            for kind in (OBJECTIVE, REWRITE):
                server.at(list_path(kind, group))
        self.client = Client(TokenAccess(server.url))
        writer = StatusWriter(self.client, pause_s=0.0, refused_pause_s=0.01)
        self.part = CustomResources(
            self.client, self.decided, namespace="default", pool=POOL, gather_s=0.0, writer=writer,
            random=random.random, **settings,
        )  # fmt: skip

    def _answer(self, request: web.Request) -> web.Response | None:
        if (refused := self.refuse(request)) is not None:
            return refused
        for group, name in enumerate(GROUPS):
            if not request.path.startswith(f"/apis/{name}/"):
                continue
            if group not in self.installed:
                return web.Response(status=404, text="404 page not found\n")
            if request.path == f"/apis/{name}/{VERSION}":
                served = [
                    {"name": f"{plural}{sub}", "kind": kind, "namespaced": True}
                    for kind, plural in PLURALS.items()
                    for sub in ("", "/status")
                ]
                return web.json_response({"kind": "APIResourceList", "resources": served})
        return None

    def objectives(self, group: int = 0) -> Collection:
        return self.server.at(list_path(OBJECTIVE, group))

    def rewrites(self, group: int = 0) -> Collection:
        return self.server.at(list_path(REWRITE, group))

    def condition(self, of: Collection, name: str) -> str:
        """Return the condition of an object: its status and its reason."""
        conditions = of.objects[name].get("status", {}).get("conditions", ())
        return next((f"{each['status']} {each['reason']}" for each in conditions if each["type"] == "Accepted"), "")

    def gauges(self) -> dict[tuple[str, ...], float]:
        return {(one.name, *labels): value for one in self.part.readings() for labels, value in one.samples}

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 - a socket announces nothing
                await asyncio.sleep(0.002)


@asynccontextmanager
async def site(*installed: int, **settings: Any) -> AsyncIterator[Site]:
    async with api_server() as server:
        here = Site(server, *installed, **settings)
        async with here.client:
            await here.part.start()
            try:
                yield here
            finally:
                await here.part.stop()
