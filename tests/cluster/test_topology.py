"""A release whose configuration reads nodes, under the rights that its chart gives it, and without them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.charts.helm import CHARTS
from tests.charts.test_accounts import TOPOLOGY
from tests.cluster.cluster import Cluster
from tests.cluster.workloads import engines

pytestmark = [pytest.mark.timeout(240), pytest.mark.cluster]
CHART = str(CHARTS / "standalone")
POD_SOURCE = "  - {type: k8s-notification-source, name: pods, parameters: {version: v1, kind: Pod}}\n"
BOUND = "extractors: [{pluginRef: topology-extractor}]}"
CONFIG = TOPOLOGY.replace("plugins:\n", f"plugins:\n{POD_SOURCE}").replace(
    "sources: [", f"sources: [{{pluginRef: pods, {BOUND}, "
)
WAIT = ("--wait", "--timeout", "90s")


@pytest.fixture(scope="module")
def here(here: Cluster) -> Cluster:
    here.apply(engines(1))
    here.rolled_out("engines")
    return here


def values(folder: Path, **rights: bool) -> tuple[str, str]:
    """Return the arguments of helm for a release that reads nodes."""
    path = folder / "values.yaml"
    router = {
        "inferencePool": {"create": False},
        "modelServers": {"matchLabels": {"app": "engines"}},
        "epp": {"pluginsConfigFile": "own.yaml", "pluginsCustomConfig": {"own.yaml": CONFIG}},
    }
    path.write_text(yaml.safe_dump({"router": router, "tierwise": {"rights": rights}}))
    return ("--values", str(path))


def score(here: Cluster, rack: str) -> float:
    """Return what the scorer makes of the only endpoint for a peer in ``rack``."""
    with here.forwarded("deployment/racks-epp", 9091) as address:
        words = ["explain", f"--url=http://{address}", "--prompt=a", f"--header=x-peer-topology:rack={rack}", "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "epp.commandline.cli", *words], capture_output=True, text=True, check=True
        )
    (candidate,) = json.loads(done.stdout)["candidates"]
    found: float = candidate["scores"]["topology-affinity-scorer"]["value"]
    return found


def test_an_endpoint_has_the_rack_of_its_node_under_the_rights_of_the_chart(here: Cluster, tmp_path: Path) -> None:
    """Racks are on nodes alone; zones are not, since newer API servers copy them onto pods."""
    (node,) = (each["metadata"]["name"] for each in here.get("nodes")["items"])

    def story() -> str:
        return here.log("racks-epp", "-c", "epp")

    here.helm("install", "racks", CHART, *values(tmp_path), *WAIT)
    for rack, other in (("r1", "r2"), ("r2", "r1")):
        here.kubectl("label", "node", node, f"topology.kubernetes.io/rack={rack}", "--overwrite")
        here.until(lambda: score(here, rack) > score(here, other), story)  # noqa: B023 - called at once
    assert "forbidden" not in story()

    here.helm("upgrade", "racks", CHART, *values(tmp_path, readNodes=False), *WAIT)
    here.kubectl("rollout", "restart", "deployment/racks-epp")
    here.rolled_out("racks-epp")
    here.until(lambda: 'cannot list resource \\"nodes\\"' in story(), story)
    here.helm("uninstall", "racks", *WAIT)
