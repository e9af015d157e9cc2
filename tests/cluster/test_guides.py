"""The guides' pages as a reader types them, in a cluster of processes with simulated engines."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.cluster import crds
from tests.cluster.cluster import Cluster
from tests.cluster.environment import program
from tests.cluster.guide import GUIDES, Shell, as_expected, steps

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
VOLUME = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {"name": "shared"},
    "spec": {
        "capacity": {"storage": "18000Gi"},
        "accessModes": ["ReadWriteMany"],
        "hostPath": {"path": "/mnt/shared"},
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "lustre",
    },
}
INSTEAD = {
    "PROVIDER": "none",
    "MONITORING": "inferenceExtension.monitoring.prometheus.enabled",
    "PROVIDER_NAME": "istio",
    "STORAGE_CLASS": "lustre",
}
"""The kinds of GKE have no definition that could be had here (``crds.NOT_OBTAINABLE``)."""
SETTLED_S = 60.0
"""How long a list of objects may take until it is the one of the page."""


@pytest.fixture(scope="module")
def here(here: Cluster) -> Cluster:
    crds.install(here.plane, "gateway-api", "inference-v1.5.0", "prometheus-operator", "istio")
    return here


@pytest.fixture
def shell(here: Cluster, tmp_path: Path) -> Shell:
    for name in ("kubectl", "helm"):
        (tmp_path / name).symlink_to(program(name))
    path = f"{tmp_path}:/usr/local/bin:/usr/bin:/bin"
    return Shell({"PATH": path, "HOME": str(tmp_path), "KUBECONFIG": str(here.kubeconfig)}, INSTEAD)


def follow(here: Cluster, shell: Shell, page: str, mode: str = "") -> None:
    """Run a page's commands in their order, and compare what they print."""
    before = cluster_wide(here)
    for step in steps(GUIDES / page):
        if step.not_run or step.mode not in ("", mode):
            continue
        try:
            printed = shell.run(step.commands)
        except AssertionError as failed:
            raise AssertionError(f"{failed}\n{here.story()}") from None
        deadline = time.monotonic() + SETTLED_S
        # A pod that was replaced may be listed until its process has ended.
        while step.commands.startswith("kubectl get") and not as_expected(printed, step.output or printed):
            assert time.monotonic() < deadline, f"{step.commands}\n{printed}"
            printed = shell.run(step.commands)
        if step.output:
            assert as_expected(printed, step.output), f"{step.commands}\n{printed}"
    assert cluster_wide(here) == before, "what is in no namespace is removed, too"


def cluster_wide(here: Cluster) -> set[str]:
    kinds = "namespaces,clusterroles,clusterrolebindings,customresourcedefinitions"
    return set(here.kubectl("get", kinds, "-o", "name").split())


def test_the_guide_for_cpu_memory_from_its_first_command_to_its_last(here: Cluster, shell: Shell) -> None:
    follow(here, shell, "cpu-offloading.md")


@pytest.mark.parametrize("mode", ["standalone", "gateway"])
def test_the_guide_for_shared_storage_in_both_modes(here: Cluster, shell: Shell, mode: str) -> None:
    here.apply(VOLUME)
    follow(here, shell, "shared-storage.md", mode)
    here.kubectl("delete", "persistentvolume", "shared")


def test_a_page_that_is_wrong_would_be_noticed(here: Cluster, shell: Shell) -> None:
    with pytest.raises(AssertionError, match="no-such-folder"):
        shell.run("kubectl apply -k manifests/no-such-folder")
    table = shell.run("kubectl get namespace default")
    assert as_expected(table, table)
    assert not as_expected(table, table.replace("default", "another"))
