"""A route of a Gateway of Istio's to an InferencePool, whose picker the chart installs, and what its loss costs."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request

import pytest

from tests.cluster.cluster import ROOT, Cluster
from tests.cluster.environment import program
from tests.cluster.gateway import istio
from tests.cluster.load import Load
from tests.cluster.workloads import complete, engines

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
CHART = ROOT / "manifests/charts/inferencepool"
VALUES = (
    "--set", "inferencePool.modelServers.matchLabels.app=engines",
    "--set", "provider.name=istio",
    "--set", "experimentalHttpRoute.enabled=true",
    "--set", "experimentalHttpRoute.inferenceGatewayName=front",
)  # fmt: skip
PICKER = "inferencepool=my-epp"
SERVED = re.compile(r"^vllm:request_success_total{.*} (\S+)$", re.MULTILINE)
THREADS = 4
TOLD_S = 1.0
"""How long a pod's report takes on its way through the API server and Istio to Envoy."""
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


def test_a_killed_picker_costs_only_requests_of_the_time_until_its_pod_is_known_to_be_gone(
    here: Cluster, front: str
) -> None:
    with Load(f"{front}:80", THREADS) as load:
        load.serves()
        (picker,) = here.pods(PICKER)
        killed = time.monotonic()
        here.kill(picker, "epp")
        here.until(lambda: restarts(here) > 0, here.story)
        gone = time.monotonic()
        load.serves(50)
        here.rolled_out("my-epp")
        load.serves(100)
    # Until Istio has taken the pod away, Envoy gives it the bodies of requests, which nobody can give back.
    assert load.lost_outside((killed, gone + TOLD_S)) == []


def test_a_pool_that_fails_open_is_served_without_a_picker(here: Cluster, front: str) -> None:
    with Load(f"{front}:80", THREADS) as load:
        load.serves()
        scale(here, 0)
        load.serves(100)
        scale(here, 1)
        load.serves(100)
    assert load.lost == [], "a picker that ends in order gives back what it holds"


def test_a_pool_that_fails_closed_sends_nothing_to_engines_without_a_picker(here: Cluster, front: str) -> None:
    fails(here, "FailClose")
    scale(here, 0)
    try:
        here.until(lambda: refused(front) == 500, lambda: istio.story(here))
        before = served(here)
        assert [refused(front) for _ in range(10)] == [500] * 10
        assert served(here) == before
    finally:
        scale(here, 1)
        fails(here, "FailOpen")
    here.until(lambda: _answers(front), here.story)


def scale(here: Cluster, replicas: int) -> None:
    """Have so many pickers, and wait until they are ready, or gone."""
    here.kubectl("scale", "deployment/my-epp", f"--replicas={replicas}")
    if replicas:
        here.rolled_out("my-epp")
    else:
        here.until(lambda: not here.get("pods", "-l", PICKER)["items"], here.story, 120.0)


def fails(here: Cluster, mode: str) -> None:
    """Set the pool's failure mode."""
    patch = {"spec": {"endpointPickerRef": {"failureMode": mode}}}
    here.kubectl("patch", "inferencepool", "my", "--type=merge", "-p", json.dumps(patch))


def restarts(here: Cluster) -> int:
    """Return how often the picker's container was started again."""
    (picker,) = here.pods(PICKER)
    return sum(one["restartCount"] for one in picker["status"]["containerStatuses"])


def refused(front: str) -> int:
    """Return the status of a refusal; 0 for an answer."""
    try:
        complete(front)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    return 0


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
