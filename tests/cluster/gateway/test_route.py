"""A route of a Gateway of Istio's to an InferencePool, whose picker the chart installs."""

from __future__ import annotations

import re
import urllib.request

import pytest

from tests.cluster.cluster import ROOT, Cluster
from tests.cluster.environment import program
from tests.cluster.gateway import istio
from tests.cluster.workloads import complete, engines

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
CHART = ROOT / "manifests/charts/inferencepool"
VALUES = (
    "--set", "inferencePool.modelServers.matchLabels.app=engines",
    "--set", "provider.name=istio",
    "--set", "experimentalHttpRoute.enabled=true",
    "--set", "experimentalHttpRoute.inferenceGatewayName=front",
)  # fmt: skip
SERVED = re.compile(r"^vllm:request_success_total{.*} (\S+)$", re.MULTILINE)
FRONT = {
    "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "front"},
    "spec": {"gatewayClassName": "istio", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]},
}  # fmt: skip


@pytest.fixture(scope="module")
def front(here: Cluster) -> str:
    """The address of a Gateway with a route to the chart's pool."""
    program("helm")
    istio.start(here)
    here.apply(FRONT, engines(3))
    istio.data_plane(here, "front")
    here.rolled_out("engines", "front-istio")
    here.helm("install", "my", str(CHART), *VALUES, "--wait", "--timeout", "90s")
    address = here.address("front-istio")
    here.until(lambda: _answers(address), lambda: f"{here.story()}\n{istio.story(here)}")
    return address


def test_a_request_passes_and_its_prefix_comes_back_to_the_same_pod(here: Cluster, front: str) -> None:
    before = served(here)
    prompt = "It was the best of times, it was the worst of times. " * 40
    for _ in range(6):
        complete(front, prompt)
    after = served(here)
    assert sorted(after[pod] - before[pod] for pod in before) == [0, 0, 6]
    for number in range(30):
        complete(front, f"{number} times another beginning. " * 40)
    assert all(count > after[pod] for pod, count in served(here).items()), "all others are spread over the pods"


def served(here: Cluster) -> dict[str, int]:
    """Return how many requests each engine has served, by its own count."""
    counts = {}
    for pod in here.pods("app=engines"):
        with urllib.request.urlopen(f"http://{pod['status']['podIP']}:8000/metrics", timeout=10) as response:
            found = SERVED.findall(response.read().decode())
        counts[pod["metadata"]["name"]] = sum(int(float(number)) for number in found)
    return counts


def _answers(address: str) -> bool:
    try:
        complete(address)
    except OSError:
        return False
    return True
