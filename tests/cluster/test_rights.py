"""Rights, readers of the metrics, and identities of a kubeconfig, at a real API server."""

from __future__ import annotations

import asyncio
import base64
import itertools
import logging
import re
import textwrap
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from epp.config.wiring.build import plan_from
from epp.discovery.options import PodOptions, PoolOptions
from epp.kube import backoff, follow
from epp.kube.client import Client
from epp.kube.errors import KubeError, Refused
from epp.kube.groups import VERSIONS
from epp.kube.kubeconfig.files import Kubeconfig, open_kubeconfig
from epp.kube.objects import Decoder, ListOf, Pod
from epp.kube.own_rights import OwnRights
from epp.server.cluster import Cluster, open_cluster
from epp.server.core import Core
from epp.server.settings import ClusterOptions, Settings
from tests.cluster import crds
from tests.cluster.control_plane import ControlPlane
from tests.epp.discovery.pods import ACTIVE, written

PATIENCE_S = 45
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PAGE = Path(__file__).parents[2] / "docs" / "kubernetes.md"
PODS = Decoder(ListOf[Pod])
V1 = "client.authentication.k8s.io/v1"
NUMBERS = itertools.count()
Rule = dict[str, Any]


def documented(name: str) -> list[Rule]:
    """The rules of a Role or ClusterRole on the page, one verb of one resource each."""
    blocks = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (found,) = (
        item
        for block in blocks
        for item in yaml.safe_load_all(block)
        if isinstance(item, dict) and item.get("metadata", {}).get("name") == name and "rules" in item
    )
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
        for rule in found["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


class Site:
    """A namespace with the picker's account, and accounts of readers."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.folder, self.namespace = plane, folder, f"rights-{next(NUMBERS)}"
        plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        self.token = plane.token_for(self.namespace, "picker")

    def kubeconfig(self, user: dict[str, Any]) -> str:
        cluster = {"server": self.plane.url, "certificate-authority": "ca.crt"}
        (self.folder / "ca.crt").write_bytes(self.plane.authority.read_bytes())
        content = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c", "namespace": self.namespace}}],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "c", "user": user}],
        }
        (self.folder / "config").write_text(yaml.safe_dump(content))
        return str(self.folder / "config")

    def allow_everywhere(self, account: str, rules: list[Rule]) -> None:
        """Give an account of the namespace a ClusterRole."""
        self.plane.allow_everywhere(self.namespace, account, rules)

    def allow_what_is_documented(self) -> None:
        """Give the picker the Role and the ClusterRole of the page."""
        self.plane.allow(self.namespace, "picker", documented("tierwise"))
        self.allow_everywhere("picker", documented("tierwise-reviews"))

    def apply(self, manifest: str) -> None:
        """Create the Roles and bindings of a manifest, under names of this test."""
        for item in yaml.safe_load_all(manifest):
            where = item["metadata"].get("namespace")
            scope = f"{RBAC}/namespaces/{where}" if where else RBAC
            for named in (item["metadata"], item.get("roleRef", {})):
                named["name"] = f"{self.namespace}-applied"
            self.plane.request("POST", f"{scope}/{item['kind'].lower()}s", item)

    @asynccontextmanager
    async def picker(self, *, pool: bool = False) -> AsyncIterator[Cluster]:
        """What a picker does with this API server, by a kubeconfig, with authentication of the metrics."""
        pods = None if pool else PodOptions(selector="app=vllm", ports=(8000,))
        options = ClusterOptions(
            metrics_auth=True, pods=pods, pool=PoolOptions(name="llama", groups=tuple(VERSIONS)) if pool else None
        )
        settings = Settings(cluster=options)
        environ = {"KUBECONFIG": self.kubeconfig({"token": self.token})}
        self.core = Core(plan_from(None, None), settings)
        async with AsyncExitStack() as stack:
            cluster = await open_cluster(settings, self.core, environ, stack, lambda: True)
            assert cluster is not None
            assert cluster.namespace == self.namespace
            own_rights(cluster)._again_s = 0.2
            yield cluster


def own_rights(cluster: Cluster) -> OwnRights:
    (found,) = (part for part in cluster._parts if isinstance(part, OwnRights))
    return found


def missing(cluster: Cluster) -> dict[str, float]:
    (reading,) = own_rights(cluster).readings()
    return {labels[0]: value for labels, value in reading.samples}


async def get(cluster: Cluster, token: str | None) -> int:
    assert cluster.readers is not None
    return (await cluster.readers.verdict("GET", "/metrics", None if token is None else f"Bearer {token}")).status


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - a socket announces nothing
            await asyncio.sleep(0.02)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_with_exactly_the_documented_roles_everything_works(
    plane: ControlPlane, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        here = Site(plane, tmp_path)
        here.allow_what_is_documented()
        prometheus, curious = (plane.token_for(here.namespace, name) for name in ("prometheus", "curious"))
        here.allow_everywhere("prometheus", [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}])
        pod = written("a", annotations={ACTIVE: "8000"})
        pod["metadata"]["namespace"] = here.namespace
        plane.put_pod(pod)
        async with here.picker() as cluster:
            discovery = cluster.endpoints
            assert discovery is not None
            await until(lambda: discovery.loaded)
            await until(lambda: missing(cluster) == {"pods": 0.0, "metrics-auth": 0.0})
            statuses = [await get(cluster, token) for token in (prometheus, curious, "forged", None, here.token)]
            assert statuses == [200, 403, 401, 401, 403]
            assert cluster.troubles == ()
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []

    run(work())


@pytest.mark.parametrize("gone", [("pods", "list"), ("pods", "watch"), ("tokenreviews", "create"),
                                  ("subjectaccessreviews", "create")], ids=" ".join)  # fmt: skip
def test_without_one_rule_the_rest_works_and_the_manifest_in_the_log_puts_it_right(
    plane: ControlPlane, tmp_path: Path, gone: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    def without(name: str) -> list[Rule]:
        return [rule for rule in documented(name) if (rule["resources"][0], rule["verbs"][0]) != gone]

    async def work() -> None:
        here = Site(plane, tmp_path)
        plane.allow(here.namespace, "picker", without("tierwise"))
        here.allow_everywhere("picker", without("tierwise-reviews"))
        reader = plane.token_for(here.namespace, "reader")
        here.allow_everywhere("reader", [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}])
        feature = "pods" if gone[0] == "pods" else "metrics-auth"
        async with here.picker() as cluster:
            discovery = cluster.endpoints
            assert discovery is not None
            await until(lambda: missing(cluster).get(feature) == 1.0)
            assert f"the picker may not {gone[1]} {gone[0]}" in " ".join(cluster.troubles)
            assert await get(cluster, reader) == (200 if feature == "pods" else 500)
            if gone != ("pods", "list"):
                await until(lambda: discovery.loaded)
            else:
                await until(lambda: discovery.trouble is not None)
                assert not discovery.loaded
            (roles,) = (r.getMessage() for r in caplog.records if r.getMessage().startswith("to give the picker"))
            here.apply(textwrap.dedent(roles.partition("\n")[2]))
            await until(lambda: missing(cluster) == {"pods": 0.0, "metrics-auth": 0.0})
            await until(lambda: discovery.loaded and discovery.trouble is None)
            assert await get(cluster, reader) == 200
            await until(lambda: cluster.troubles == ())

    run(work())


def test_a_right_that_is_taken_away_and_given_back_is_noticed_without_a_restart(
    plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "WATCH_S", (1, 2))  # the API server checks rights when a watch is opened
    monkeypatch.setattr(backoff, "LONGEST_WAIT_S", 0.5)

    async def work() -> None:
        here = Site(plane, tmp_path)
        here.allow_what_is_documented()
        async with here.picker() as cluster:
            discovery = cluster.endpoints
            assert discovery is not None
            await until(lambda: missing(cluster) == {"pods": 0.0, "metrics-auth": 0.0} and discovery.loaded)
            binding = f"{RBAC}/namespaces/{here.namespace}/rolebindings"
            plane.request("DELETE", f"{binding}/picker")
            await until(lambda: missing(cluster) == {"pods": 2.0, "metrics-auth": 0.0})
            assert "pods: the picker may not list pods" in " ".join(cluster.troubles)
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "picker"}
            subject = {"kind": "ServiceAccount", "name": "picker", "namespace": here.namespace}
            plane.request("POST", binding, {"metadata": {"name": "picker"}, "roleRef": role, "subjects": [subject]})
            await until(lambda: cluster.troubles == () and discovery.trouble is None)

    run(work())


IN_A_POOL = ("pods", "pool", "objectives", "rewrites", "metrics-auth")


@pytest.fixture(scope="module")
def defined(plane: ControlPlane) -> None:
    crds.apply(plane, crds.definitions("inference-v1.5.0"))
    crds.apply(plane, crds.llm_d())


@pytest.mark.usefixtures("defined")
@pytest.mark.parametrize("gone", ["", "inferencepools", "inferenceobjectives", "inferencemodelrewrites"])
def test_of_a_pool_without_one_kind_the_rest_works_until_the_manifest_in_the_log_is_applied(
    plane: ControlPlane, tmp_path: Path, gone: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "LONGEST_WAIT_S", 0.5)

    async def work() -> None:
        here = Site(plane, tmp_path)
        plane.allow(here.namespace, "picker", [r for r in documented("tierwise") if r["resources"] != [gone]])
        here.allow_everywhere("picker", documented("tierwise-reviews"))
        spec = {
            "selector": {"matchLabels": {"app": "vllm"}}, "targetPorts": [{"number": 8000}],
            "endpointPickerRef": {"name": "epp", "port": {"number": 9002}},
        }  # fmt: skip
        pools = f"/apis/inference.networking.k8s.io/v1/namespaces/{here.namespace}/inferencepools"
        kind = {"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool"}
        plane.request("POST", pools, {**kind, "metadata": {"name": "llama"}, "spec": spec})
        async with here.picker(pool=True) as cluster:
            discovery = cluster.endpoints
            assert discovery is not None
            if gone:
                feature = {"inferencepools": "pool", "inferenceobjectives": "objectives"}.get(gone, "rewrites")
                await until(lambda: missing(cluster).get(feature, 0.0) > 0)
                assert f"{feature}: the picker may not list {gone}" in " ".join(cluster.troubles)
                if feature == "pool":
                    await until(lambda: discovery.trouble is not None)
                    assert not discovery.loaded
                else:
                    await until(lambda: discovery.loaded)
                (roles,) = (r.getMessage() for r in caplog.records if r.getMessage().startswith("to give the picker"))
                here.apply(textwrap.dedent(roles.partition("\n")[2]))
            await until(lambda: missing(cluster) == dict.fromkeys(IN_A_POOL, 0.0))
            objective = {
                "apiVersion": "llm-d.ai/v1alpha2",
                "kind": "InferenceObjective",
                "metadata": {"name": "urgent"},
            }
            path = f"/apis/llm-d.ai/v1alpha2/namespaces/{here.namespace}/inferenceobjectives"
            plane.request("POST", path, {**objective, "spec": {"poolRef": {"name": "llama"}, "priority": 7}})
            await until(lambda: here.core._objectives == {"urgent": 7})
            await until(lambda: discovery.loaded and cluster.troubles == ())

    run(work())


async def listed(access: Kubeconfig, namespace: str) -> None:
    async with Client(access, answer_s=25.0) as client:
        await client.get(f"/api/v1/namespaces/{namespace}/pods", PODS)


def plugin(folder: Path, script: str) -> dict[str, Any]:
    (folder / "plugin").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "plugin").chmod(0o700)
    return {
        "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin", "interactiveMode": "Never"}
    }


def credential(status: str) -> str:
    return f"""cat <<END
{{"apiVersion": "{V1}", "kind": "ExecCredential", "status": {{{status}}}}}
END"""


def test_tokens_client_certificates_and_plugins_are_identities_that_the_api_server_knows(
    plane: ControlPlane, tmp_path: Path
) -> None:
    async def work() -> None:
        here = Site(plane, tmp_path)
        read = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
        plane.allow(here.namespace, "picker", read)
        scope = f"{RBAC}/namespaces/{here.namespace}"
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "picker"}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}
        binding = {"metadata": {"name": "jane"}, "roleRef": role, "subjects": [subject]}
        plane.request("POST", f"{scope}/rolebindings", binding)
        certificate, key = plane.clients.client("jane")
        files = {"client-certificate": "jane.crt", "client-key": "jane.key"}
        (tmp_path / "jane.crt").write_bytes(certificate)
        (tmp_path / "jane.key").write_bytes(key)
        data = {
            f"{name}-data": base64.b64encode((tmp_path / file).read_bytes()).decode() for name, file in files.items()
        }
        (tmp_path / "token").write_text(here.token)
        for user in ({"token": here.token}, {"tokenFile": "token"}, files, data):
            await listed(await open_kubeconfig([here.kubeconfig(user)]), here.namespace)
        user = plugin(tmp_path, credential(f'"token": "{here.token}"'))
        await listed(await open_kubeconfig([here.kubeconfig(user)]), here.namespace)
        pair = (certificate.decode().replace("\n", r"\n"), key.decode().replace("\n", r"\n"))
        user = plugin(tmp_path, credential('"clientCertificateData": "{}", "clientKeyData": "{}"'.format(*pair)))
        await listed(await open_kubeconfig([here.kubeconfig(user)]), here.namespace)
        certificate, key = plane.clients.client("john")
        (tmp_path / "jane.crt").write_bytes(certificate)
        (tmp_path / "jane.key").write_bytes(key)
        with pytest.raises(Refused, match='User "john" cannot list resource "pods"'):
            await listed(await open_kubeconfig([here.kubeconfig(files)]), here.namespace)

    run(work())


def test_a_token_that_was_replaced_is_used_from_then_on(plane: ControlPlane, tmp_path: Path) -> None:
    async def work() -> None:
        here = Site(plane, tmp_path)
        plane.allow(here.namespace, "picker", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}])
        (tmp_path / "token").write_text("expired")
        access = await open_kubeconfig([here.kubeconfig({"tokenFile": "token"})])
        with pytest.raises(Refused, match="the token is missing, expired or of another cluster"):
            await listed(access, here.namespace)
        (tmp_path / "token").write_text(here.token)
        await listed(access, here.namespace)

        tokens = tmp_path / "tokens"  # a plugin that has an expired token at first
        tokens.write_text("expired")
        access = await open_kubeconfig([here.kubeconfig(plugin(tmp_path, credential(f'"token": "$(cat {tokens})"')))])
        access._least_s = 0.0
        with pytest.raises(Refused, match="401"):
            await listed(access, here.namespace)
        tokens.write_text(here.token)
        await listed(access, here.namespace)
        runs = access.runs
        await listed(access, here.namespace)
        assert access.runs == runs

    run(work())


def test_an_authority_that_was_replaced_is_used_from_then_on(plane: ControlPlane, tmp_path: Path) -> None:
    async def work() -> None:
        here = Site(plane, tmp_path)
        here.allow_what_is_documented()
        async with here.picker() as cluster:
            discovery = cluster.endpoints
            assert discovery is not None
            await until(lambda: discovery.loaded)
            plane.kill("kube-apiserver")
            for file in plane.authority.parent.iterdir():
                file.unlink()
            plane.start_api_server()  # in this thread, with which the process would end
            await until(lambda: "not trusted" in (discovery.trouble or ""))
            (tmp_path / "ca.crt").write_bytes(plane.authority.read_bytes())
            await until(lambda: discovery.trouble is None)
            assert await get(cluster, "forged") == 401

    run(work())


def test_without_the_right_to_ask_what_it_may_do_the_picker_works(
    plane: ControlPlane, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    basic = f"{RBAC}/clusterrolebindings/system:basic-user"
    before = plane.request("GET", basic)

    async def work() -> None:
        here = Site(plane, tmp_path)
        here.allow_what_is_documented()
        async with here.picker() as cluster:
            discovery = cluster.endpoints
            assert discovery is not None
            await until(lambda: discovery.loaded)
            await until(lambda: "what the picker may do is not known" in caplog.text)
            assert cluster.troubles == ()
            assert await get(cluster, here.token) == 403

    plane.request("DELETE", basic)
    try:
        run(work())
    finally:
        del before["metadata"]["resourceVersion"], before["metadata"]["uid"]
        plane.request("POST", basic.rpartition("/")[0], before)


def test_a_refusal_names_the_verb_and_the_resource(plane: ControlPlane, tmp_path: Path) -> None:
    async def work() -> None:
        here = Site(plane, tmp_path)
        with pytest.raises(KubeError, match='cannot list resource "pods" in API group "" in the namespace') as refused:
            await listed(await open_kubeconfig([here.kubeconfig({"token": here.token})]), here.namespace)
        assert "a Role with this rule is missing" in str(refused.value)

    run(work())
