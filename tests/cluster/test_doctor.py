"""What `tierwise doctor` names of 24 faults, and whether it accuses installations that are healthy."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from epp.kube.groups import OLD_GROUP
from tests.cluster import crds
from tests.cluster.cluster import ROOT, Cluster, cluster
from tests.cluster.environment import Unavailable, program
from tests.cluster.installed import POOL, PRESET, SELECTED, SETS, causes, gateway, injections, install, set_gateway
from tests.cluster.workloads import engines
from tests.doctor.faults import FAULTS, HEALTHY

pytestmark = pytest.mark.timeout(600)
TIERWISE = str(Path(sys.executable).with_name("tierwise"))
NAMED_AT_LEAST = 22
SETTLED_S = 25.0
CHARTS = ROOT / "manifests" / "charts"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    try:
        program("helm")
        with cluster(tmp_path_factory.mktemp("cluster")) as running:
            crds.install(running.plane, "gateway-api", "istio", "inference-v1.5.0")
            crds.apply(running.plane, crds.llm_d())
            older = [one for one in crds.definitions("inference-v1.2.0") if one["spec"]["group"] == OLD_GROUP]
            crds.apply(running.plane, [one for one in older if one["spec"]["names"]["kind"] == "InferencePool"])
            yield running
    except Unavailable as reason:
        pytest.skip(str(reason))


def doctor(here: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command as an operator does. Raises: AssertionError if it could not look."""
    environment = {**os.environ, "KUBECONFIG": str(here.kubeconfig), "COLUMNS": "80"}
    return subprocess.run(
        [TIERWISE, "doctor", *words], capture_output=True, text=True, check=False, env=environment, timeout=60
    )


def found(here: Cluster) -> list[str]:
    """Return the causes that are found now."""
    ran = doctor(here, "--json")
    assert ran.stdout, ran.stderr
    named = causes(ran.stdout)
    assert ran.returncode == (1 if set(named) - {"could-not-look"} else 2 if named else 0), ran.stdout
    return named


def settled(here: Cluster, wanted: set[str]) -> list[str]:
    """Return what is found once it is the same twice and has ``wanted``, nothing else if that is empty, or at the end.

    A fault takes effect when its parts notice it.
    """
    deadline, before = time.monotonic() + SETTLED_S, None
    while time.monotonic() < deadline:
        named = found(here)
        if named == before and wanted <= set(named) and bool(named) is bool(wanted):
            return named
        before = named
    return found(here)


HEALTHY_VALUES = {
    "gateway": (CHARTS / "inferencepool", SETS),
    "elected": (CHARTS / "inferencepool", (*SELECTED, "--set", "inferenceExtension.replicas=3")),
    "standalone": (CHARTS / "standalone", (
        "--set", "inferenceExtension.endpointsServer.createInferencePool=false",
        "--set", "inferenceExtension.endpointsServer.endpointSelector=app=engines")),
    "router": (CHARTS / "inferencepool", (
        "--set", "router.modelServers.matchLabels.app=engines", "--set", "router.epp.replicas=2",
        "--set", "tierwise.highAvailability=active", "--set", "router.inferenceObjectives[0].name=high",
        "--set", "router.inferenceObjectives[0].priority=7")),
}  # fmt: skip


def test_healthy_installations_are_not_accused(here: Cluster) -> None:
    assert set(HEALTHY_VALUES) == set(HEALTHY)
    here.apply(engines(2, preset=PRESET), gateway())
    here.rolled_out("engines")
    set_gateway(here, "True")
    accused = {}
    for name, (chart, sets) in HEALTHY_VALUES.items():
        here.helm("install", POOL, str(chart), *sets, "--wait", "--timeout", "120s")
        ran = doctor(here)
        print(f"{name}: exit code {ran.returncode}: {ran.stdout.splitlines()[-1]}", flush=True)
        if ran.returncode:
            accused[name] = ran.stdout + ran.stderr
        here.helm("uninstall", POOL, "--wait", "--timeout", "60s")
    assert accused == {}


def test_faults_are_named_and_the_healthy_installation_is_not_accused(here: Cluster) -> None:
    install(here)
    assert settled(here, set()) == [], doctor(here).stdout
    put_in = injections()
    assert set(put_in) == {fault.cause for fault in FAULTS}
    rows: dict[str, list[str]] = {}
    for cause in sorted(put_in, key=lambda cause: cause == "no-definitions"):
        began = time.monotonic()
        put_in[cause].put(here)
        rows[cause] = settled(here, {cause})
        print(f"{cause}: {rows[cause]} in {time.monotonic() - began:.1f} s", flush=True)
        put_in[cause].undo(here)
        if cause != "no-definitions":
            left = settled(here, set())
            assert left == [], f"{cause} is taken out, and {left} is found:\n{doctor(here).stdout}"
    named = [cause for cause, seen in rows.items() if cause in seen]
    table = "\n".join(f"| `{cause}` | {', '.join(f'`{one}`' for one in seen) or '-'} |" for cause, seen in rows.items())
    print(table)
    assert len(named) >= NAMED_AT_LEAST, table
    assert rows["no-definitions"] == ["no-definitions"]
