"""The standalone chart, installed by helm in a cluster of processes, serves real requests and leaves nothing behind."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

from tests.cluster.cluster import ROOT, Cluster
from tests.cluster.registry import registry
from tests.cluster.workloads import complete

pytestmark = [pytest.mark.timeout(240), pytest.mark.usefixtures("two_engines")]
CHART = ROOT / "manifests/charts/standalone"
SELECTED = (
    "--set", "inferenceExtension.endpointsServer.createInferencePool=false",
    "--set", "inferenceExtension.endpointsServer.endpointSelector=app=engines",
)  # fmt: skip
MADE_BY_OTHERS = ("event", "lease", "endpointslice", "endpoints", "pod/", "replicaset")
WAIT = ("--wait", "--timeout", "90s")


def inventory(here: Cluster) -> set[str]:
    """Return every object of the cluster but those that controllers and nodes make."""
    kinds = here.kubectl("api-resources", "--verbs=list", "-o", "name").split()
    wanted = [kind for kind in kinds if not kind.startswith(("events", "leases", "endpoint", "componentstatuses"))]
    names = here.kubectl("get", ",".join(wanted), "-A", "-o", "name", "--ignore-not-found").split()
    return {name for name in names if not any(word in name for word in MADE_BY_OTHERS)}


def test_a_release_serves_requests_is_upgraded_rolled_back_tested_and_leaves_nothing(here: Cluster) -> None:
    before = inventory(here)
    here.helm("install", "my", str(CHART), *SELECTED, *WAIT)
    address = f"{here.address('my-epp')}:8081"
    assert complete(address)["object"] == "text_completion"
    here.helm("upgrade", "my", str(CHART), *SELECTED, "--set", "inferenceExtension.flags.v=4", *WAIT)
    assert "--v=4" in here.kubectl("get", "deployment", "my-epp", "-o", "yaml")
    assert complete(address)["object"] == "text_completion"
    here.helm("rollback", "my", "1", *WAIT)
    assert "--v=4" not in here.kubectl("get", "deployment", "my-epp", "-o", "yaml")
    assert complete(address)["object"] == "text_completion"
    assert "Phase:          Succeeded" in here.helm("test", "my", "--timeout", "60s")
    here.helm("uninstall", "my", *WAIT)
    here.until(lambda: inventory(here) <= before, lambda: str(inventory(here) - before))


@pytest.mark.cluster
def test_a_client_does_not_choose_where_the_proxy_connects(here: Cluster) -> None:
    here.helm("install", "safe", str(CHART), *SELECTED, *WAIT)
    request = urllib.request.Request(
        f"http://{here.address('safe-epp')}:8081/v1/models",
        headers={"x-gateway-destination-endpoint": f"10.0.0.1:{here.plane.port}"},
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        assert b"tierwise-sim" in response.read()
    here.helm("uninstall", "safe", *WAIT)


@pytest.mark.cluster
def test_requests_fall_back_to_the_pods_that_are_known_while_no_picker_runs(here: Cluster) -> None:
    here.helm("install", "open", str(CHART), *SELECTED, *WAIT)
    address = f"{here.address('open-epp')}:8081"
    assert complete(address)["object"] == "text_completion"
    (pod,) = here.get("pods", "-l", "epp=open-epp")["items"]
    here.kill(pod, "epp")
    assert complete(f"{pod['status']['podIP']}:8081")["object"] == "text_completion"
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://{pod['status']['podIP']}:9090/metrics", timeout=5)
    here.until(
        lambda: here.get("pod", pod["metadata"]["name"])["status"]["containerStatuses"][0]["restartCount"] == 1,
        here.story,
    )
    here.helm("uninstall", "open", *WAIT)


def test_a_chart_is_pushed_to_a_registry_and_installed_from_there(here: Cluster, tmp_path: Path) -> None:
    before = inventory(here)
    with registry(here, tmp_path) as address:
        here.helm("package", str(CHART), "--destination", str(tmp_path))
        (package,) = tmp_path.glob("standalone-*.tgz")
        here.helm("push", str(package), f"oci://{address}/charts", "--plain-http")
        version = package.stem.removeprefix("standalone-")
        source = (f"oci://{address}/charts/standalone", "--version", version, "--plain-http")
        here.helm("install", "pulled", *source, *SELECTED, *WAIT)
        assert complete(f"{here.address('pulled-epp')}:8081")["object"] == "text_completion"
        here.helm("uninstall", "pulled", *WAIT)
    here.until(lambda: inventory(here) <= before, lambda: str(inventory(here) - before))
