"""What the API server says to everything that the charts render, and what a release leaves behind."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.charts.guides import GUIDES, Guide
from tests.charts.helm import CHARTS
from tests.charts.helm import program as helm
from tests.charts.rendering import Object, Values, pool_values, render, understood
from tests.cluster import crds
from tests.cluster.control_plane import ADMIN, ControlPlane, control_plane
from tests.cluster.environment import Unavailable, program

NAMESPACE = "llm"
UNCHECKED = {
    "networking.gke.io": "networking.gke.io",
    "monitoring.googleapis.com": "monitoring.googleapis.com",
}
"""Groups whose definitions no Go module has, with the keys of ``crds.NOT_OBTAINABLE``."""
EVERYTHING = {
    "podDisruptionBudget": {"enabled": True},
    "networkPolicy": {"enabled": True},
    "indexSnapshot": {"enabled": True, "volume": {"persistentVolumeClaim": {"claimName": "index"}}},
    "highAvailability": "active",
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "nodeSelector": {"disk": "fast"},
    "priorityClassName": "system-cluster-critical",
    "imagePullSecrets": [{"name": "pull"}],
    "rights": {"writeStatus": True, "readNodes": True},
    "serviceAccount": {"annotations": {"iam.gke.io/gcp-service-account": "picker@project"}},
    "envoy": {"maxMemory": "2Gi", "maxConnections": 1000},
    "extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "more"}, "data": {"a": "b"}}],
}
SCALED = {"enabled": True, "minReplicas": 2, "maxReplicas": 4, "targetCPUUtilizationPercentage": 70}
OTHERS: dict[str, tuple[str, Values]] = {
    "service": (
        "standalone",
        {
            **pool_values(
                "router",
                proxy={"mode": "service"},
                epp={"autoscaling": SCALED},
                tokenizer={"enabled": True, "modelName": "Qwen/Qwen3-32B"},
            ),
            "tierwise": EVERYTHING,
        },
    ),
    "elected": (
        "inferencepool",
        pool_values(
            "inferenceExtension",
            replicas=3,
            tracing={"enabled": True},
            monitoring={"prometheus": {"enabled": True}},
        ),
    ),
    "objectives": (
        "inferencepool",
        pool_values("router", inferenceObjectives=[{"name": "high", "priority": 2147483647}]),
    ),
    "envoy-ai-gateway": (
        "inferencepool",
        {**pool_values("router"), "provider": {"name": "envoy-ai-gateway"}, "httpRoute": {"create": True}},
    ),
    "v1alpha2": (
        "inferencepool",
        {
            "inferencePool": {
                "apiVersion": "inference.networking.x-k8s.io/v1alpha2",
                "modelServers": {"matchLabels": {"app": "qwen"}},
            }
        },
    ),
}


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    try:
        with control_plane(tmp_path_factory.mktemp("plane")) as made:
            crds.install(made, "gateway-api", "prometheus-operator", "istio", "envoy-gateway", "inference-v1.5.0")
            crds.apply(made, crds.llm_d())
            labels = {"pod-security.kubernetes.io/enforce": "restricted"}
            made.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
            yield made
    except Unavailable as reason:
        pytest.skip(str(reason))


def kubectl(plane: ControlPlane, *words: str, stdin: str | None = None) -> str:
    """Run kubectl as the administrator. Raises: AssertionError with what it printed."""
    cluster = [f"--server={plane.url}", f"--certificate-authority={plane.authority}", f"--token={ADMIN}"]
    ran = subprocess.run(
        [str(program("kubectl")), *cluster, *words], input=stdin, capture_output=True, text=True, check=False,
        timeout=60, env={**os.environ, "KUBECONFIG": "/dev/null"},
    )  # fmt: skip
    assert ran.returncode == 0, f"kubectl {' '.join(words)}: {ran.stderr}"
    return ran.stdout


def accepted(plane: ControlPlane, objects: tuple[Object, ...]) -> None:
    """Let the API server judge objects, without keeping them, and their pods under the restricted standard."""
    known = [each for each in objects if each["apiVersion"].partition("/")[0] not in UNCHECKED]
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "judged", "namespace": NAMESPACE}, "spec": pod}
        for pod in (each["spec"].get("template", {}).get("spec") for each in known if each["kind"] == "Deployment")
        if not any(container["name"] == "vllm-render" for container in pod["containers"])
    ]
    for pod in pods:
        pod["spec"].pop("serviceAccountName", None)  # which is not there either
    for several in (known, *([pod] for pod in pods)):
        kubectl(
            plane, "apply", "--dry-run=server", "--namespace", NAMESPACE, "-f", "-", stdin=yaml.safe_dump_all(several)
        )


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane without any definition."""
    try:
        (tmp_path / "plane").mkdir()
        with control_plane(tmp_path / "plane") as made:
            made.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
            yield made
    except Unavailable as reason:
        pytest.skip(str(reason))


def cluster_of(plane: ControlPlane) -> list[str]:
    """The flags of helm that name the API server."""
    return [f"--kube-apiserver={plane.url}", f"--kube-ca-file={plane.authority}", f"--kube-token={ADMIN}"]


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.name)
def test_the_api_server_accepts_what_the_guides_render(plane: ControlPlane, guide: Guide) -> None:
    accepted(plane, render(guide.chart, {}, *guide.arguments).objects)


@pytest.mark.parametrize("name", OTHERS)
def test_the_api_server_accepts_the_rest(plane: ControlPlane, name: str) -> None:
    if name == "v1alpha2":
        crds.install(plane, "inference-v1.2.0")
    chart, values = OTHERS[name]
    accepted(plane, render(chart, values).objects)


def test_the_api_server_accepts_the_example_of_a_sidecar(plane: ControlPlane) -> None:
    example = CHARTS.parents[1] / "docs" / "examples" / "sidecar" / "deployment.yaml"
    objects = tuple(yaml.safe_load_all(example.read_text()))
    accepted(plane, objects)
    containers = objects[-1]["spec"]["template"]["spec"]["containers"]
    [arguments] = [each["args"] for each in containers if each["name"] == "epp"]
    assert understood(arguments).picker.host == "127.0.0.1"


@pytest.mark.parametrize("chart", ["inferencepool", "standalone"])
def test_a_release_is_installed_changed_put_back_and_leaves_nothing_behind(
    plane: ControlPlane, chart: str, tmp_path: Path
) -> None:
    release = f"release-{chart}"

    def ask(*words: str) -> str:
        command = [helm(), *words, *cluster_of(plane), "--namespace", NAMESPACE]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def arguments() -> str:
        path = "jsonpath={.spec.template.spec.containers[0].args}"
        return kubectl(plane, "get", "--namespace", NAMESPACE, f"deployment/{release}-epp", "-o", path)

    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(pool_values("inferenceExtension")))
    folder = str(CHARTS / chart)
    assert f"InferencePool {release} and its picker {release}-epp" in ask(
        "install", release, folder, "--values", str(values)
    )
    before = arguments()
    ask("upgrade", release, folder, "--values", str(values), "--set", "inferenceExtension.flags.v=4")
    assert "--v=4" in arguments()
    ask("rollback", release, "1")
    assert arguments() == before
    ask("uninstall", release)
    left = kubectl(
        plane, "get", "--all-namespaces", "-o", "name", "-l", f"app.kubernetes.io/name={release}-epp",
        "deployment,service,serviceaccount,role,rolebinding,clusterrole,clusterrolebinding,configmap,secret,"
        "inferencepool,networkpolicy,poddisruptionbudget",
    )  # fmt: skip
    assert not left.strip()


def test_definitions_are_installed_where_the_values_say_so_and_stay(bare: ControlPlane) -> None:
    def ask(*words: str) -> None:
        command = [helm(), *words, *cluster_of(bare), "--namespace", NAMESPACE]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert ran.returncode == 0, ran.stderr

    objectives = "router.inferenceObjectives[0].name=high,router.inferenceObjectives[0].priority=7"
    ask(
        "install", "first", str(CHARTS / "inferencepool"), "--set", "tierwise.crds.install=true",
        "--set", "router.modelServers.matchLabels.app=qwen", "--set", objectives,
    )  # fmt: skip
    rewrite = {
        "apiVersion": "llm-d.ai/v1alpha2",
        "kind": "InferenceModelRewrite",
        "metadata": {"name": "canary", "namespace": NAMESPACE},
        "spec": {
            "poolRefs": [{"name": "first"}],
            "rules": [{"matches": [{"model": {"value": "qwen"}}], "targets": [{"modelRewrite": "qwen-2"}]}],
        },
    }
    kubectl(bare, "apply", "-f", "-", stdin=yaml.safe_dump(rewrite))
    pool = yaml.safe_load(kubectl(bare, "get", "-n", NAMESPACE, "infpool/first", "-o", "yaml"))["spec"]
    assert pool["endpointPickerRef"]["kind"] == "Service"
    ask("uninstall", "first")
    assert len(kubectl(bare, "get", "crds", "-o", "name").split()) == 3


def test_a_release_of_upstreams_chart_is_upgraded_in_place(plane: ControlPlane, tmp_path: Path) -> None:
    """Its objects have the same names and selectors, which Kubernetes lets nothing change."""
    upstream = crds.module_folder("inference-v1.5.0") / "config" / "charts" / "inferencepool"
    folder = tmp_path / "charts"
    shutil.copytree(upstream.parent, folder)
    for path in folder.rglob("*"):
        path.chmod(0o755)

    def ask(*words: str, wrong: bool = False) -> str:
        command = [helm(), *words, *cluster_of(plane), "--namespace", NAMESPACE]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert bool(ran.returncode) == wrong, ran.stderr
        return ran.stdout

    ask("dependency", "build", str(folder / "inferencepool"))
    sets = ("--set", "inferencePool.modelServers.matchLabels.app=qwen", "--set", "inferenceExtension.replicas=2")
    ask("install", "moved", str(folder / "inferencepool"), *sets)
    path = ("get", "--namespace", NAMESPACE, "deployment/moved-epp", "-o", "jsonpath={.metadata.uid} {.spec.selector}")
    before = kubectl(plane, *path)
    ask("upgrade", "moved", str(CHARTS / "inferencepool"), *sets)
    assert kubectl(plane, *path) == before
    ask("rollback", "moved", "1")
    assert kubectl(plane, *path) == before
    ask("uninstall", "moved")
