"""The parts of a picker that use the API server: started, shown and stopped as one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from epp.config.wiring.build import plan_from
from epp.discovery.options import PodOptions
from epp.errors import ConfigError
from epp.metrics.gauges import Reading
from epp.pool.pool import Endpoint, Pool
from epp.server.cluster import Cluster, _needs, open_cluster
from epp.server.core import Core
from epp.server.health import Health
from epp.server.readiness import readiness
from epp.server.settings import ClusterOptions, Settings
from tests.epp.kube.access import TokenAccess


class Recorded:
    """A part that writes what happens to it into the log of its test."""

    def __init__(self, name: str, log: list[str], trouble: str | None = None, *, refuses: bool = False) -> None:
        self.name, self.log, self.trouble, self._refuses = name, log, trouble, refuses

    async def start(self) -> None:
        if self._refuses:
            raise ConfigError(f"{self.name} can never work")
        self.log.append(f"start {self.name}")

    async def stop(self) -> None:
        self.log.append(f"stop {self.name}")

    def readings(self) -> Iterator[Reading]:
        yield Reading(f"tierwise_{self.name}", "Of the test.", (), [((), 1.0)])


def cluster(**options: str) -> Cluster:
    return Cluster(TokenAccess("http://127.0.0.1:9", namespace="own"), ClusterOptions(**options))


def test_parts_start_in_order_and_stop_the_other_way_round() -> None:
    log = list[str]()

    async def work() -> None:
        here = cluster()
        here.add(Recorded("a", log))
        here.add(Recorded("b", log, "b may not read"))
        assert here.troubles == ("b may not read",)
        assert [reading.name for reading in here.readings()] == [
            "tierwise_a",
            "tierwise_b",
            "tierwise_kubernetes_objects_unreadable",
        ]
        await here.start()
        await here.stop()

    asyncio.run(work())
    assert log == ["start a", "start b", "stop b", "stop a"]


def test_a_part_that_cannot_start_leaves_nothing_open() -> None:
    log = list[str]()

    async def work() -> None:
        here = cluster()
        here.add(Recorded("a", log))
        here.add(Recorded("b", log, refuses=True))
        with pytest.raises(ConfigError, match="b can never work"):
            await here.start()
        with pytest.raises(RuntimeError, match="Session is closed"):
            await here.client.get("/", None)  # type: ignore[arg-type]

    asyncio.run(work())
    assert log == ["start a", "stop a"]


def test_what_a_part_cannot_do_is_said_and_leaves_the_picker_ready() -> None:
    pool = Pool()
    pool.put(Endpoint("10.0.0.1:8000"))
    health, troubles = Health(lambda: True), ("no objectives", "no leases")
    assert readiness(health, None, pool, scraped=False) == (True, "ready")
    assert readiness(health, None, pool, scraped=False, troubles=troubles) == (
        True, "ready, but no objectives; no leases",
    )  # fmt: skip
    pool.remove("10.0.0.1:8000")
    assert readiness(health, None, pool, scraped=False, troubles=troubles[:1]) == (
        True, "ready, but there are no endpoints; no objectives",
    )  # fmt: skip
    health.drain()
    assert readiness(health, None, pool, scraped=False, troubles=troubles[:1]) == (
        False, "not ready: stopping; no objectives",
    )  # fmt: skip


@pytest.mark.parametrize(("named", "account", "expected"), [
    ("llm", "own", "llm"), (None, "own", "own"), (None, None, "default"),
])  # fmt: skip
def test_the_namespace_is_the_named_one_or_that_of_the_identity(
    named: str | None, account: str | None, expected: str
) -> None:
    access = TokenAccess("http://127.0.0.1:9", namespace=account)
    assert Cluster(access, ClusterOptions(namespace=named)).namespace == expected


def test_authentication_that_is_asked_for_without_an_api_server_is_refused() -> None:
    settings = Settings(endpoints=("localhost:1",), cluster=ClusterOptions(metrics_auth=True))

    async def work() -> None:
        async with AsyncExitStack() as stack:
            await open_cluster(
                settings, Core(plan_from(None, None), settings), {"HOME": "/nowhere"}, stack, lambda: False
            )

    with pytest.raises(ConfigError, match=r"--metrics-endpoint-auth=true needs .*: there is no API server") as error:
        asyncio.run(work())
    assert "--endpoint" not in str(error.value).replace("--metrics-endpoint-auth", "")  # it is given


@pytest.mark.parametrize(("asked", "in_a_pod", "guarded"), [
    (None, True, True), (None, False, False), (False, True, False), (True, False, True),
])  # fmt: skip
def test_a_picker_in_a_pod_asks_who_may_read_its_metrics_with_a_kubeconfig_too(
    tmp_path: Path, asked: bool | None, in_a_pod: bool, guarded: bool
) -> None:
    (tmp_path / "config").write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c, user: c}}], "
        "users: [{name: c, user: {token: t}}], clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]}"
    )
    environ = {"KUBECONFIG": str(tmp_path / "config")}
    pods = PodOptions(selector="app=vllm", ports=(8000,))
    settings = Settings(cluster=ClusterOptions(metrics_auth=asked, pods=pods, namespace="llm"))
    if in_a_pod:
        environ["KUBERNETES_SERVICE_HOST"] = "127.0.0.1"

    async def work() -> None:
        async with AsyncExitStack() as stack:
            here = await open_cluster(settings, Core(plan_from(None, None), settings), environ, stack, lambda: False)
            assert here is not None
            assert (here.readers is not None) is guarded
            assert [need.feature for need in _needs(here)] == ["pods", *(["metrics-auth"] if guarded else [])]

    asyncio.run(work())


def test_objects_for_plugins_without_an_api_server_are_refused_in_one_sentence(tmp_path: Path) -> None:
    config = """
        apiVersion: llm-d.ai/v1alpha1
        kind: EndpointPickerConfig
        plugins: [{type: k8s-notification-source, parameters: {version: v1, kind: Node}}, {type: topology-extractor}]
        dataLayer: {sources: [{pluginRef: k8s-notification-source, extractors: [{pluginRef: topology-extractor}]}]}
    """

    async def work() -> None:
        settings = Settings(endpoints=("127.0.0.1:9",))
        core = Core(plan_from(None, config), settings)
        async with AsyncExitStack() as stack:
            await open_cluster(settings, core, {"HOME": str(tmp_path)}, stack, lambda: True)

    sentence = r"dataLayer\.sources\[0\]: a k8s-notification-source needs an API server: .*pass --kubeconfig"
    with pytest.raises(ConfigError, match=sentence):
        asyncio.run(work())
