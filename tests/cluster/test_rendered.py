"""All versions of the definitions accept the charts' pools, and releases of upstream's charts are upgraded in place."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from tests.charts import upstream
from tests.charts.guides import FEATURES, GUIDES, VALUES, Guide
from tests.charts.helm import CHARTS, NAMESPACE, RELEASE, Object, objects
from tests.cluster import crds
from tests.cluster.control_plane import ADMIN, ControlPlane, control_plane
from tests.cluster.environment import Unavailable, program
from tests.cluster.test_charts_accepted import kubectl

pytestmark = pytest.mark.timeout(300)
OBJECTIVES = ("router.inferenceObjectives[0].name=batch,router.inferenceObjectives[0].priority=-1",)
ALL = (*GUIDES, *FEATURES, Guide("router-objectives", "inferencepool", ("router-base", "router-cpu"), OBJECTIVES))
LONGEST = "a-release-that-has-a-name-of-fifty-three-characters-x"
"""As long as helm allows."""
VERSIONS = sorted(name for name in crds.SETS if name.startswith("inference-"))
MANIFESTS = CHARTS.parent
PAGE = CHARTS.parents[1] / "docs" / "charts.md"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    try:
        program("helm")
        with control_plane(tmp_path_factory.mktemp("plane")) as made:
            crds.install(made, "gateway-api", "prometheus-operator", "istio", "envoy-gateway", "inference-v1.5.0")
            crds.apply(made, crds.llm_d())
            made.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
            yield made
    except Unavailable as reason:
        pytest.skip(str(reason))


def group(each: Object) -> str:
    return str(each["apiVersion"]).rpartition("/")[0]


def judged(plane: ControlPlane, wanted: list[Object]) -> None:
    """Let the API server judge objects without keeping them."""
    text = yaml.safe_dump_all(wanted)
    kubectl(plane, "apply", "--dry-run=server", "--namespace", NAMESPACE, "-f", "-", stdin=text)


def test_the_api_server_accepts_what_other_values_render(plane: ControlPlane) -> None:
    """The objects of the pool's groups are left to the test of their versions."""
    left = {*crds.NOT_OBTAINABLE, "inference.networking.k8s.io", "inference.networking.x-k8s.io"}
    rendered = [each for guide in FEATURES for each in objects(CHARTS / guide.chart, *guide.arguments)]
    judged(plane, [each for each in rendered if group(each) not in left])


def served(version: str) -> set[tuple[str, str]]:
    """Return the kinds of a set of definitions, with their versions."""
    return {
        (f"{one['spec']['group']}/{each['name']}", one["spec"]["names"]["kind"])
        for one in (*crds.definitions(version), *crds.llm_d())
        for each in one["spec"]["versions"]
    }


@cache
def of_the_pools() -> list[Object]:
    """Return all pools and objectives that any values render."""
    groups = ("inference.networking.k8s.io", "inference.networking.x-k8s.io", "llm-d.ai")
    rendered = [each for guide in ALL for each in objects(CHARTS / guide.chart, *guide.arguments)]
    return [each for each in rendered if group(each) in groups]


def test_some_version_has_each_kind_of_the_pools() -> None:
    everywhere = {kind for version in VERSIONS for kind in served(version)}
    assert {(each["apiVersion"], each["kind"]) for each in of_the_pools()} <= everywhere


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_of_the_definitions_accepts_the_pools(plane: ControlPlane, version: str) -> None:
    """Objects of a group that a version does not have are left to the versions that have it."""
    crds.install(plane, version)
    known = served(version)
    found = [each for each in of_the_pools() if (each["apiVersion"], each["kind"]) in known]
    assert {each["kind"] for each in found} >= {"InferencePool", "InferenceObjective"}
    judged(plane, found)


def helm(plane: ControlPlane, *words: str) -> str:
    """Run helm as the administrator. Raises: AssertionError with what it printed."""
    cluster = [f"--kube-apiserver={plane.url}", f"--kube-ca-file={plane.authority}", f"--kube-token={ADMIN}"]
    command = [str(program("helm")), *words, *cluster, "--namespace", NAMESPACE]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


UPGRADES = [
    ("inferencepool", "v1.2.0", ("v0.4",)),
    ("inferencepool", "v1.5.0", ("storage-base", "storage")),
    ("standalone", "v1.5.0", ("storage-base", "storage")),
]


@pytest.mark.parametrize(("chart", "version", "files"), UPGRADES, ids=[" ".join(each[:2]) for each in UPGRADES])
def test_a_release_of_upstreams_chart_is_upgraded_and_put_back(
    plane: ControlPlane, chart: str, version: str, files: tuple[str, ...], tmp_path: Path
) -> None:
    crds.install(plane, "inference-v1.5.0")
    values = [word for name in files for word in ("--values", str(VALUES / f"{name}.values.yaml"))]
    try:
        theirs = str(upstream.chart(chart, version, tmp_path))
    except Unavailable as missing:
        pytest.skip(str(missing))
    helm(plane, "install", RELEASE, theirs, *values)
    try:
        where = "jsonpath={.metadata.uid}"
        deployment = ("get", "--namespace", NAMESPACE, f"deployment/{RELEASE}-epp", "-o")
        before = kubectl(plane, *deployment, where)
        helm(plane, "upgrade", RELEASE, str(CHARTS / chart), *values)
        assert kubectl(plane, *deployment, where) == before, "the Deployment was replaced"
        assert "tierwise" in kubectl(plane, *deployment, "jsonpath={.spec.template.spec.containers[0].command}")
        helm(plane, "rollback", RELEASE, "1")
        helm(plane, "upgrade", RELEASE, str(CHARTS / chart), *values)
    finally:
        helm(plane, "uninstall", RELEASE)


@pytest.mark.parametrize("chart", ["inferencepool", "standalone"])
def test_names_of_53_characters_and_two_releases_in_one_namespace(plane: ControlPlane, chart: str) -> None:
    crds.install(plane, "inference-v1.5.0")
    assert len(LONGEST) == 53
    files = ("router-base", "router-cpu", "router-monitoring")
    values = [word for name in files for word in ("--values", str(VALUES / f"{name}.values.yaml"))]
    everything = ("--set", "router.monitoring.prometheus.auth.enabled=true,provider.name=istio")
    names = (LONGEST, "other", "another")
    for name in names:
        helm(plane, "install", name, str(CHARTS / chart), *values, *everything)
    for name in names:
        kubectl(plane, "get", "--namespace", NAMESPACE, f"inferencepool/{name}")
        helm(plane, "uninstall", name)


def test_the_page_names_each_kind_that_no_definition_could_check() -> None:
    """Rendered by any values of the guides, or by a setting that the guides do not have."""
    more = Guide(
        "", "inferencepool", ("router-base", "router-cpu", "router-monitoring"),
        ("provider.name=gke,provider.gke.preferredBackends.enabled=true",),
    )  # fmt: skip
    found = {
        (each["kind"], group(each))
        for guide in (*ALL, more)
        for each in objects(CHARTS / guide.chart, *guide.arguments)
        if group(each) in crds.NOT_OBTAINABLE and group(each) != "llm-d.ai"
    }
    for path in sorted(MANIFESTS.glob("gateway/**/*.yaml")) + sorted(MANIFESTS.glob("modelserver/**/*.yaml")):
        for each in yaml.safe_load_all(path.read_text().replace("${STORAGE_CLASS}", "any")):
            if group(each) in crds.NOT_OBTAINABLE:
                found.add((each["kind"], group(each)))
    section = PAGE.read_text().partition("## What could not be checked")[2].partition("\n## ")[0]
    rows = {
        (row[0].strip(" `"), row[1].strip(" `"))
        for row in (line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `"))
    }
    assert rows == found
