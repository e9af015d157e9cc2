"""What kubectl applies of the kustomizations and deletes again, at a real API server with the real definitions."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.cluster import crds
from tests.cluster.control_plane import ADMIN, ControlPlane
from tests.cluster.environment import program
from tests.kustomize.kubectl import MANIFESTS, kubectl

ENGINES = MANIFESTS / "modelserver" / "gpu" / "vllm"
VARIANTS = sorted(path.name for path in ENGINES.iterdir())
GATEWAYS = sorted(path.name for path in (MANIFESTS / "gateway").iterdir() if path.name != "base")
WITHOUT_DEFINITION = {"agentgateway-openshift": "agentgateway.dev"}
"""Recipes of which one kind cannot be checked, and its group in ``crds.NOT_OBTAINABLE``."""
ANY_PARAMETERS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "agentgatewayparameters.agentgateway.dev"},
    "spec": {
        "group": "agentgateway.dev",
        "scope": "Namespaced",
        "names": {"plural": "agentgatewayparameters", "kind": "AgentgatewayParameters"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
"""Accepts whatever is in it, so that the rest of its recipe is applied and deleted all the same."""


@pytest.fixture(scope="module")
def plane(plane: ControlPlane) -> ControlPlane:
    crds.install(plane, "gateway-api", "prometheus-operator", "envoy-gateway", "inference-v1.5.0")
    plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": "guide"}})
    return plane


def ask(plane: ControlPlane, *words: str, stdin: str | None = None) -> str:
    """Run kubectl against the control plane, as its administrator. Raises: AssertionError with what it printed."""
    cluster = [
        f"--server={plane.url}",
        f"--certificate-authority={plane.authority}",
        f"--token={ADMIN}",
        "--namespace=guide",
    ]
    ran = subprocess.run(
        [kubectl(), *cluster, *words], input=stdin, capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "KUBECONFIG": "/dev/null"},
    )  # fmt: skip
    assert ran.returncode == 0, f"kubectl {' '.join(words)}: {ran.stderr}"
    return ran.stdout


def lines(text: str) -> list[str]:
    """What kubectl did, without the namespace that newer versions name."""
    return sorted(line.partition(" from ")[0].replace('"', "") for line in text.splitlines())


def apply_and_delete(plane: ControlPlane, applied: Path, deleted: Path) -> None:
    made = lines(ask(plane, "apply", "-k", str(applied)))
    assert made
    assert all(line.endswith(" created") for line in made), made
    gone = lines(ask(plane, "delete", "-k", str(deleted)))
    assert len(gone) == len(made)
    assert all(line.endswith(" deleted") for line in gone), gone


@pytest.mark.parametrize("part", ["base", "gke"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_engines_are_applied_and_deleted_by_the_folder_above(plane: ControlPlane, variant: str, part: str) -> None:
    apply_and_delete(plane, ENGINES / variant / part, ENGINES / variant)


@pytest.mark.parametrize("name", sorted(path.name for path in (MANIFESTS / "vllm").iterdir()))
def test_engines_are_deleted_by_the_folder_of_another_connector(plane: ControlPlane, name: str) -> None:
    apply_and_delete(plane, MANIFESTS / "vllm" / name, MANIFESTS / "vllm" / "offloading-connector")


def test_a_monitor_is_applied_alone(plane: ControlPlane) -> None:
    folder = MANIFESTS / "modelserver" / "components" / "monitoring"
    apply_and_delete(plane, folder, folder)


@pytest.mark.parametrize("recipe", GATEWAYS)
def test_a_recipe_for_a_gateway_is_applied_and_deleted(plane: ControlPlane, recipe: str) -> None:
    if group := WITHOUT_DEFINITION.get(recipe):
        assert group in crds.NOT_OBTAINABLE
        crds.apply(plane, [ANY_PARAMETERS])
    apply_and_delete(plane, MANIFESTS / "gateway" / recipe, MANIFESTS / "gateway" / recipe)


def test_the_claim_is_deleted_without_its_storage_class(plane: ControlPlane) -> None:
    """As the guide does: `envsubst` when it is applied, and the file itself when it is deleted."""
    claim = MANIFESTS / "modelserver" / "pvc.yaml"
    ask(plane, "apply", "-f", "-", stdin=claim.read_text().replace("${STORAGE_CLASS}", "lustre"))
    # The controller that removes the finalizer of an unused claim does not run here.
    ask(plane, "delete", "--wait=false", "-f", str(claim))
    found = ask(plane, "get", "pvc", "-o", "jsonpath={.items[*].metadata.deletionTimestamp}")
    assert found


def test_the_chart_of_engines_is_installed_changed_and_leaves_nothing_behind(plane: ControlPlane) -> None:
    cluster = [
        f"--kube-apiserver={plane.url}",
        f"--kube-ca-file={plane.authority}",
        f"--kube-token={ADMIN}",
        "--namespace=guide",
    ]

    def helm(*words: str) -> None:
        command = [str(program("helm")), *words, *cluster]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert ran.returncode == 0, ran.stderr

    def memory() -> str:
        path = "jsonpath={.spec.template.spec.containers[0].resources.limits.memory}"
        return ask(plane, "get", "deployment/engines", "-o", path)

    chart = str(MANIFESTS / "charts" / "modelserver")
    helm("install", "engines", chart, "--set", "monitoring.enabled=true")
    assert memory() == "225Gi"
    helm("upgrade", "engines", chart, "--set", "cache.cpu=200Gi")
    assert memory() == "350Gi"
    helm("uninstall", "engines")
    assert not ask(
        plane, "get", "deployment,serviceaccount,podmonitor,secret", "-l", "app.kubernetes.io/instance=engines"
    )
