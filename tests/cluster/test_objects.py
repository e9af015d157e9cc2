"""Objectives and rewrites of a real API server, under the definitions of the Gateway API Inference Extension.

The definitions of the group llm-d.ai are those of the older group under another name: no obtainable module has them.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from epp.kube import backoff, served
from epp.kube.access import HOST, PORT, InCluster
from epp.kube.client import Client
from epp.kube.objects_inference import GROUPS, OBJECTIVE, PLURALS, REWRITE, VERSION
from epp.resources.custom_resources import CustomResources
from epp.resources.status_writer import StatusWriter
from tests.cluster import crds
from tests.cluster.control_plane import ControlPlane
from tests.epp.resources.following import Decided
from tests.epp.resources.objects import LEGACY, LLM_D, POOL, REF, rule

PATIENCE_S = 60
RESOURCES = list(PLURALS.values())
READ = [{"apiGroups": list(GROUPS), "resources": RESOURCES, "verbs": ["list", "watch"]}]
WRITE = [{"apiGroups": list(GROUPS), "resources": [f"{one}/status" for one in RESOURCES], "verbs": ["patch"]}]
KINDS = OBJECTIVE, REWRITE
NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "LOOK_AGAIN_S", (0.2, 0.4))
    monkeypatch.setattr(backoff, "LONGEST_WAIT_S", 0.5)


class Site:
    """A namespace, a service account, and the part of a picker that follows the objects of the pool there."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.namespace, self.decided = plane, f"objects-{next(NUMBERS)}", Decided()
        plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        (folder / "token").write_text(plane.token_for(self.namespace, "picker"))
        (folder / "ca.crt").write_bytes(plane.authority.read_bytes())
        self.client = Client(InCluster({HOST: "127.0.0.1", PORT: str(plane.port)}, folder))
        self.part = self.another()

    def another(self) -> CustomResources:
        writer = StatusWriter(self.client, refused_pause_s=0.3)
        return CustomResources(self.client, self.decided, namespace=self.namespace, pool=POOL, writer=writer)

    def path(self, kind: str, group: int, name: str = "") -> str:
        return f"/apis/{GROUPS[group]}/{VERSION}/namespaces/{self.namespace}/{PLURALS[kind]}" + f"/{name}" * bool(name)

    def put(self, kind: str, name: str, spec: dict[str, Any], group: int = LLM_D) -> None:
        """Create an object of this pool, or replace its spec."""
        item = {"apiVersion": f"{GROUPS[group]}/{VERSION}", "kind": kind, "metadata": {"name": name}}
        path = f"{self.path(kind, group, name)}?fieldManager=tests&force=true"
        self.plane.request("PATCH", path, {**item, "spec": {**REF, **spec}}, "application/apply-patch+yaml")

    async def put_younger(self, kind: str, name: str, spec: dict[str, Any], group: int, older: str) -> None:
        """Create an object in another second than ``older``, since the API writes whole seconds."""
        made = self.plane.request("GET", self.path(kind, LLM_D, older))["metadata"]["creationTimestamp"]
        while True:
            self.put(kind, name, spec, group)
            path = self.path(kind, group, name)
            if self.plane.request("GET", path)["metadata"]["creationTimestamp"] != made:
                return
            self.plane.request("DELETE", path)
            await asyncio.sleep(0.1)

    def delete(self, kind: str, name: str, group: int = LLM_D) -> None:
        self.plane.request("DELETE", self.path(kind, group, name))

    def condition(self, kind: str, name: str, group: int = LLM_D) -> dict[str, Any]:
        conditions = self.plane.request("GET", self.path(kind, group, name)).get("status", {}).get("conditions", ())
        return next((one for one in conditions if one["type"] == "Accepted"), {})

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 - the API server announces nothing to a test
                await asyncio.sleep(0.02)

    async def accepted(self, kind: str, name: str, reason: str, group: int = LLM_D) -> dict[str, Any]:
        """Wait until the condition has this reason, and return it."""
        await self.until(lambda: self.condition(kind, name, group).get("reason") == reason)
        return self.condition(kind, name, group)

    def writes(self, result: str) -> float:
        return reading(self.part, "tierwise_custom_resource_status_writes", result)


def reading(part: CustomResources, name: str, *labels: str) -> float:
    return next(dict(one.samples)[labels] for one in part.readings() if one.name == name)


@asynccontextmanager
async def site(plane: ControlPlane, folder: Path, *rules: dict[str, Any]) -> AsyncIterator[Site]:
    here = Site(plane, folder)
    if rules:
        plane.allow(here.namespace, "picker", list(rules))
    async with here.client:
        await here.part.start()
        try:
            yield here
        finally:
            await here.part.stop()


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def install(plane: ControlPlane, *groups: int) -> None:
    for group in groups:
        wanted = crds.llm_d() if group == LLM_D else crds.definitions("inference-v1.5.0")
        crds.apply(plane, [one for one in wanted if one["spec"]["names"]["kind"] in KINDS])


def uninstall(plane: ControlPlane, *groups: int) -> None:
    for group in groups:
        for plural in RESOURCES:
            plane.request("DELETE", f"{crds.DEFINITIONS}/{plural}.{GROUPS[group]}")
        deadline = time.monotonic() + PATIENCE_S
        while any(one["spec"]["group"] == GROUPS[group] for one in plane.request("GET", crds.DEFINITIONS)["items"]):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_definitions_that_are_installed_later_are_used_and_removed_ones_are_not(
    plane: ControlPlane, tmp_path: Path
) -> None:
    async def work() -> None:
        async with site(plane, tmp_path, *READ) as here:
            await here.until(lambda: "neither llm-d.ai/v1alpha2" in (here.part.trouble or ""))
            await asyncio.to_thread(install, plane, LEGACY)
            here.put(OBJECTIVE, "batch", {"priority": -1}, LEGACY)
            await here.until(lambda: here.decided.priorities == {"batch": -1})
            await here.until(lambda: here.part.trouble is None)
            await asyncio.to_thread(install, plane, LLM_D)
            here.put(OBJECTIVE, "batch", {"priority": 1})
            await here.until(lambda: here.decided.priorities == {"batch": 1})
            await asyncio.to_thread(uninstall, plane, LLM_D)
            await here.until(lambda: here.decided.priorities == {"batch": -1})
            await asyncio.to_thread(uninstall, plane, LEGACY)
            await here.until(lambda: not here.decided.priorities and here.part.trouble is not None)

    run(work())


def test_conditions_are_written_with_their_reasons_and_once(plane: ControlPlane, tmp_path: Path) -> None:
    async def work() -> None:
        install(plane, LLM_D, LEGACY)
        async with site(plane, tmp_path, *READ, *WRITE) as here:
            here.put(REWRITE, "qwen-canary", {"rules": [rule(("a", 9), ("b", 1), to="qwen")]})
            await here.put_younger(REWRITE, "a-younger-one", {"rules": [rule("c", to="qwen")]}, LEGACY, "qwen-canary")
            lost = await here.accepted(REWRITE, "a-younger-one", "Conflicted", LEGACY)
            assert lost["message"] == "`qwen-canary` is older and matches the same model"
            assert (lost["status"], lost["observedGeneration"]) == ("False", 1)
            await here.accepted(REWRITE, "qwen-canary", "Accepted")
            here.put(OBJECTIVE, "largest", {"priority": 2147483647})
            here.put(OBJECTIVE, "too-large", {"priority": 2147483648})
            won = await here.accepted(OBJECTIVE, "largest", "Accepted")
            assert won["status"] == "True"
            largest = here.path(OBJECTIVE, LLM_D, "largest")
            other = {**won, "type": "Other", "reason": "OfAnotherController"}
            status = {"status": {"conditions": [other, won]}}
            plane.request("PATCH", f"{largest}/status", status, "application/merge-patch+json")
            here.put(OBJECTIVE, "largest", {"priority": 2147483646})
            await here.until(lambda: here.condition(OBJECTIVE, "largest")["observedGeneration"] == 2)
            assert other in plane.request("GET", largest)["status"]["conditions"], "another's condition stays"
            refused = await here.accepted(OBJECTIVE, "too-large", "Invalid")
            assert refused["message"].startswith("spec.priority: 2147483648 is not from")
            assert here.decided.priorities == {"largest": 2147483646}
            here.put(REWRITE, "no-target", {"rules": [{}]})
            refused = await here.accepted(REWRITE, "no-target", "Invalid")
            assert refused["message"] == "spec.rules[0].targets: empty; write at least one modelRewrite"
            here.delete(REWRITE, "qwen-canary")
            assert (await here.accepted(REWRITE, "a-younger-one", "Accepted", LEGACY))["status"] == "True"
            assert here.decided.rules["qwen"].targets == ("c",)
            await here.until(lambda: reading(here.part, "tierwise_custom_resource_status_pending") == 0)
            written = here.writes("written")
            second = here.another()
            await second.start()
            here.put(OBJECTIVE, "marker", {"priority": 3})
            await here.accepted(OBJECTIVE, "marker", "Accepted")
            for part in (here.part, second):
                await here.until(lambda part=part: reading(part, "tierwise_custom_resource_status_pending") == 0)
            await second.stop()
            by_second = reading(second, "tierwise_custom_resource_status_writes", "written")
            assert here.writes("written") - written + by_second == 1, "each condition is written once"

    run(work())


def test_without_the_right_to_write_nothing_else_is_missing_and_it_is_used_once_given(
    plane: ControlPlane, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        install(plane, LLM_D)
        async with site(plane, tmp_path, *READ) as here:
            here.put(OBJECTIVE, "batch", {"priority": -1})
            await here.until(lambda: here.decided.priorities == {"batch": -1})
            await here.until(lambda: here.writes("refused") >= 1)
            assert here.part.trouble is None
            plane.request(
                "PATCH",
                f"/apis/rbac.authorization.k8s.io/v1/namespaces/{here.namespace}/roles/picker",
                {"rules": [*READ, *WRITE]},
                "application/merge-patch+json",
            )
            await here.accepted(OBJECTIVE, "batch", "Accepted")

    run(work())
    assert sum("the condition Accepted is not written" in message for message in caplog.messages) == 1


def test_a_right_to_read_that_is_missing_is_named_and_used_once_it_is_given(
    plane: ControlPlane, tmp_path: Path
) -> None:
    async def work() -> None:
        install(plane, LLM_D)
        async with site(plane, tmp_path) as here:
            here.put(OBJECTIVE, "batch", {"priority": -1})
            await here.until(lambda: 'cannot list resource "inferenceobjectives"' in (here.part.trouble or ""))
            plane.allow(here.namespace, "picker", READ)
            await here.until(lambda: here.decided.priorities == {"batch": -1})
            await here.until(lambda: here.part.trouble is None)

    run(work())


def test_hundreds_of_objectives_are_applied_in_few_steps(plane: ControlPlane, tmp_path: Path) -> None:
    async def work() -> None:
        install(plane, LLM_D)
        here = Site(plane, tmp_path)
        plane.allow(here.namespace, "picker", READ)
        for n in range(300):
            plane.request(
                "POST",
                here.path(OBJECTIVE, LLM_D),
                {"apiVersion": f"{GROUPS[LLM_D]}/{VERSION}", "kind": OBJECTIVE, "metadata": {"name": f"o{n}"},
                 "spec": {**REF, "priority": n}},
            )  # fmt: skip
        async with here.client:
            await here.part.start()
            await here.until(lambda: len(here.decided.priorities) == 300)
            assert here.decided.steps == 1
            await here.part.stop()

    run(work())
