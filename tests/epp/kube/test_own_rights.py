"""What the picker may do: asked at the start, shown, and asked again while something is missing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml
from aiohttp import web

from epp.kube.client import Client
from epp.kube.errors import Refused
from epp.kube.objects import Decoder, Pod
from epp.kube.own_rights import OwnRights
from epp.kube.rights import Need, Right, custom_resources, inference_pool, leases, manifest, pods, reviews, rights
from epp.ports.http_port import HttpPort
from tests.epp.kube.access import TokenAccess
from tests.epp.kube.reviewing import PICKER, Reviewing

OBJECTIVES = Need(
    "objectives", rights("llm-d.ai", "inferenceobjectives", ("list", "watch"), "llm"),
    "only the configuration has priorities", version="llm-d.ai/v1alpha2",
)  # fmt: skip
VERBS = ("list", "watch")
ALL = {("", "pods", "list"), ("", "pods", "watch")}


@asynccontextmanager
async def asking(
    api: Reviewing, needs: Sequence[Need], rarely_s: float = 600.0, again_s: float = 0.01
) -> AsyncIterator[OwnRights]:
    port, app = HttpPort(), web.Application()
    app.router.add_route("*", "/{path:.*}", api.handle)
    url = f"http://127.0.0.1:{await port.open(app, '127.0.0.1', 0)}"
    async with Client(TokenAccess(url), answer_s=5.0) as client:
        own = OwnRights(client, needs, again_s=again_s, rarely_s=rarely_s)
        await own.start()
        try:
            yield own
        finally:
            await own.stop()
            await port.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - a socket announces nothing
            await asyncio.sleep(0.002)


def missing(own: OwnRights) -> dict[tuple[str, ...], float]:
    return {labels: value for reading in own.readings() for labels, value in reading.samples}


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_a_picker_that_has_its_rights_asks_once_and_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        api = Reviewing()
        api.rights = set(ALL)
        async with asking(api, [pods("llm"), OBJECTIVES]) as own:
            await until(lambda: missing(own) == {("pods",): 0.0, ("objectives",): 0.0})
            assert own.trouble is None
            await asyncio.sleep(0.05)  # many times the pause before a question that is repeated soon
            assert api.kinds() == ["selfsubjectaccessreviews"] * 2  # objectives are not served, so nobody needs them
        assert caplog.text == ""

    run(work())


def test_what_is_missing_is_one_warning_a_feature_and_one_role_until_it_is_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        api = Reviewing()
        api.rights, api.served = {("", "pods", "list")}, {"llm-d.ai/v1alpha2"}
        with caplog.at_level(logging.INFO):
            async with asking(api, [pods("llm"), OBJECTIVES, reviews()]) as own:
                await until(lambda: own.trouble is not None)
                assert missing(own) == {("pods",): 1.0, ("objectives",): 2.0, ("metrics-auth",): 2.0}
                asked = len(api.asked)
                await until(lambda: len(api.asked) > 3 * asked)
                *features, role = [record.getMessage() for record in caplog.records]
                assert features == (own.trouble or "").split("; ")
                assert features[0] == (
                    "pods: the picker may not watch pods in the namespace llm, so the picker does not become ready"
                )
                assert "kind: Role\n" in role
                assert "kind: ClusterRole\n" in role
                caplog.clear()
                api.rights |= ALL
                await until(lambda: missing(own)["pods",] == 0.0)
                assert "pods: the rights that were missing are there" in caplog.text

    run(work())


def test_the_rights_of_a_kind_that_is_installed_later_are_asked_for() -> None:
    async def work() -> None:
        api = Reviewing()
        api.rights = set(ALL)
        async with asking(api, [pods("llm"), OBJECTIVES], rarely_s=0.01) as own:
            await until(lambda: missing(own) == {("pods",): 0.0, ("objectives",): 0.0})
            api.served.add("llm-d.ai/v1alpha2")
            await until(lambda: (own.trouble or "").startswith("objectives: the picker may not list"))

    run(work())


@pytest.mark.parametrize("path", ["/api/v1/namespaces/llm/pods", "/api/v1/namespaces/llm/pods/a"])
def test_a_request_that_is_refused_for_want_of_a_right_is_followed_by_a_check(path: str) -> None:
    async def work() -> None:
        api = Reviewing()
        api.rights = set(ALL)
        async with asking(api, [pods("llm")]) as own:
            await until(lambda: missing(own) == {("pods",): 0.0})
            api.rights.clear()
            api.forbidden.add(path)
            with pytest.raises(Refused):
                await own._client.get(path, Decoder(Pod))
            await until(lambda: missing(own) == {("pods",): 2.0})
            assert "the picker may not list pods" in (own.trouble or "")
            api.rights = set(ALL)
            await until(lambda: own.trouble is None)

    run(work())


@pytest.mark.parametrize(
    ("path", "checks"),
    [
        ("/api/v1/namespaces/llm/pods", 2),
        ("/api/v1/nodes", 1),
        ("/apis/llm-d.ai/v1alpha2/namespaces/llm/inferenceobjectives/a/status", 1),
        ("/apis/metrics.k8s.io/v1/namespaces/llm/pods", 1),
    ],
)
def test_refusals_in_a_row_are_one_check_and_those_of_rights_that_are_not_needed_are_none(
    path: str, checks: int
) -> None:
    async def work() -> None:
        api = Reviewing()
        api.rights = set(ALL)
        api.forbidden.add(path)
        async with asking(api, [pods("llm"), OBJECTIVES], again_s=0.2) as own:
            await until(lambda: missing(own) != {})
            for _ in range(20):
                with pytest.raises(Refused):
                    await own._client.get(path, Decoder(Pod))
            assert len(api.asked) == len(ALL)  # the pause after a check has not passed
            await asyncio.sleep(0.5)
            assert len(api.asked) == checks * len(ALL)

    run(work())


def test_a_refusal_for_which_every_right_is_there_twice_is_not_checked_for_again_until_a_right_is_missing() -> None:
    """The right to one of two groups is enough, and the other group goes on refusing."""
    path = "/apis/new.group/v1/namespaces/llm/inferencepools"
    need = inference_pool({"new.group": "v1", "old.group": "v1"}, "llm")

    async def work() -> None:
        api = Reviewing()
        api.served = {"new.group/v1", "old.group/v1"}
        api.rights = {("old.group", "inferencepools", verb) for verb in VERBS}
        api.forbidden.add(path)
        async with asking(api, [need]) as own:

            async def refused(times: int) -> None:
                for _ in range(times):
                    with pytest.raises(Refused):
                        await own._client.get(path, Decoder(Pod))
                    await asyncio.sleep(0.02)

            await until(lambda: missing(own) == {("pool",): 0.0})
            once = len(api.asked)
            await refused(20)
            assert len(api.asked) == 3 * once
            api.rights.clear()
            api.forbidden.add(path.replace("new", "old"))
            with pytest.raises(Refused):
                await own._client.get(path.replace("new", "old"), Decoder(Pod))
            await until(lambda: own.trouble is not None)
            api.rights = {("old.group", "inferencepools", verb) for verb in VERBS}
            await until(lambda: own.trouble is None)
            asked = len(api.asked)
            await refused(1)
            await until(lambda: len(api.asked) > asked)

    run(work())


def test_a_forbidden_question_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        api = Reviewing()
        api.refused = {"selfsubjectaccessreviews"}
        async with asking(api, [pods("llm")]) as own:
            await until(lambda: len(api.asked) > 5)
            assert own.trouble is None
            assert missing(own) == {}
            (warning,) = [record.getMessage() for record in caplog.records]
            assert warning.startswith("what the picker may do is not known, and is found out by trying: POST")
            api.refused, api.rights = set(), set(ALL)
            await until(lambda: missing(own) == {("pods",): 0.0})

    run(work())


@pytest.mark.parametrize(
    ("served", "allowed", "lacking"),
    [
        ("v1 v1alpha2", "v1", ""),
        ("v1 v1alpha2", "v1alpha2", ""),
        ("v1 v1alpha2", "", "v1"),
        ("v1alpha2", "v1alpha2", ""),
        ("v1alpha2", "v1", "v1alpha2"),
        ("", "", ""),
    ],
)
def test_the_right_to_one_of_two_groups_is_enough(served: str, allowed: str, lacking: str) -> None:
    groups = {"v1": "inference.networking.k8s.io", "v1alpha2": "inference.networking.x-k8s.io"}

    async def work() -> None:
        api = Reviewing()
        api.served = {f"{groups[version]}/{version}" for version in served.split()}
        api.rights = {(groups[version], "inferencepools", verb) for version in allowed.split() for verb in VERBS}
        need = inference_pool({group: version for version, group in groups.items()}, "llm")
        async with asking(api, [need]) as own:
            await until(lambda: missing(own) != {})
            group = groups.get(lacking, "none")
            named = f"pool: the picker may not list inferencepools.{group} in the namespace llm"
            assert (own.trouble or "").startswith(named) if lacking else own.trouble is None

    run(work())


def test_the_manifest_has_a_role_for_each_namespace_and_a_cluster_role() -> None:
    lacking = [
        *pods("llm").rights, Right("", "services", "list", "llm"), Right("", "services", "watch", "llm"),
        *rights("coordination.k8s.io", "leases", ("update",), "other"), *reviews().rights,
    ]  # fmt: skip
    documents = list(yaml.safe_load_all(manifest(lacking, PICKER)))
    named = [(item["kind"], item["metadata"].get("namespace")) for item in documents]
    assert named == [
        ("ClusterRole", None), ("ClusterRoleBinding", None),
        ("Role", "llm"), ("RoleBinding", "llm"), ("Role", "other"), ("RoleBinding", "other"),
    ]  # fmt: skip
    assert documents[2]["rules"] == [{"apiGroups": [""], "resources": ["pods", "services"], "verbs": ["list", "watch"]}]
    assert documents[1]["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "tierwise"
    }  # fmt: skip
    assert documents[3]["subjects"] == [{"kind": "ServiceAccount", "namespace": "llm", "name": "picker"}]
    (_, binding) = yaml.safe_load_all(manifest(pods("llm").rights, "jane@example.com"))
    assert binding["subjects"] == [
        {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "jane@example.com"}
    ]


def test_a_feature_with_two_groups_is_one_warning_and_a_right_of_two_features_is_one_rule(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        api = Reviewing()
        api.served = {"llm-d.ai/v1alpha2", "inference.networking.x-k8s.io/v1alpha2"}
        needs = [*custom_resources("llm"), pods("llm"), leases("llm", "llm")]
        async with asking(api, needs) as own:
            await until(lambda: own.trouble is not None)
            counts = {("objectives",): 4.0, ("rewrites",): 4.0, ("pods",): 2.0, ("leader-election",): 7.0}
            assert missing(own) == counts
            warnings = [record.getMessage() for record in caplog.records]
            assert [warning.partition(":")[0] for warning in warnings[:-1]] == [feature for (feature,) in counts]
            role, _ = yaml.safe_load_all(warnings[-1].partition("\n")[2])
            pod_rules = [rule for rule in role["rules"] if rule["resources"] == ["pods"]]
            assert pod_rules == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]

    run(work())
