"""Outages under load: no request is lost but those that nothing could have saved, and nothing is left over."""

from __future__ import annotations

import json
import math
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.cluster import ROOT, Cluster
from tests.cluster.load import Load
from tests.cluster.many import Pods, named, one_engine_for_all
from tests.cluster.workloads import complete, engines, picker

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
OUTAGE_S = 60.0
OBEYED_S = 2.0
"""From the API server's return to picks that follow a change of then."""
MANY = 1000
"""How many pods are replaced, as fast as the API server takes it: in a minute on two cores."""
IN_FLIGHT_S = 2.0
"""For how long after an engine was killed its requests come back as failures."""
GROWTH_BYTES = 16 * 2**20
PROXY_CONNECTIONS = 4
"""One of each worker of the proxy, which it opens when a request needs it."""
API = "0100000A:01BB"
"""The API server's address and port for pods, 10.0.0.1:443, as /proc has them."""
ESTABLISHED = "01"
CHART = ROOT / "manifests/charts/standalone"
VALUES = (
    "--set", "router.inferencePool.create=false",
    "--set", "router.modelServers.matchLabels.app=engines",
    "--set", "router.proxy.mode=service",
    "--set", "router.proxy.replicas=1",
    "--set", "router.monitoring.prometheus.auth.enabled=false",
)  # fmt: skip


@pytest.fixture(scope="module")
def here(here: Cluster) -> Cluster:
    here.apply(engines(3))
    here.helm("install", "my", str(CHART), *VALUES, "--wait", "--timeout", "90s")
    here.rolled_out("engines")
    return here


@pytest.fixture
def load(here: Cluster) -> Iterator[Load]:
    scale(here, 3)
    with Load(f"{here.address('my-proxy')}:8081") as running:
        running.serves()
        yield running


@dataclass(frozen=True)
class Footprint:
    """What a picker holds."""

    watches: int
    """Connections with the API server."""

    sockets: int
    threads: int
    memory_bytes: int


@pytest.fixture
def same_footprint(here: Cluster, load: Load) -> Iterator[None]:
    """Fail a test after which the picker holds more than before."""
    before = footprint(here)
    yield
    scale(here, 3)
    load.serves()

    def grown() -> bool:
        now = footprint(here)
        more = now.watches > before.watches or now.sockets > before.sockets + PROXY_CONNECTIONS
        return more or now.memory_bytes > before.memory_bytes + GROWTH_BYTES

    here.until(lambda: not grown(), lambda: f"before {before}, now {footprint(here)}")
    assert footprint(here).threads <= before.threads + 1


def footprint(here: Cluster) -> Footprint:
    (pod,) = here.pods("llm-d-router-standalone=my-epp")
    process = Path("/proc") / str(here.pid(pod, "epp"))
    links = []
    for descriptor in (process / "fd").iterdir():
        try:
            links.append(str(descriptor.readlink()))
        except OSError:
            continue  # closed since
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    sockets = sum(link.startswith("socket:") for link in links)
    rows = [row.split() for row in (process / "net/tcp").read_text().splitlines()]
    watches = sum(row[2:4] == [API, ESTABLISHED] for row in rows)
    return Footprint(watches, sockets, int(status["Threads"]), int(status["VmRSS"].split()[0]) * 1024)


def picker_address(here: Cluster) -> str:
    """Return where the picker's metrics are, whether or not there is an API server."""
    (pod,) = here.pods("llm-d-router-standalone=my-epp")
    return f"{pod['status']['podIP']}"


def endpoints_at(address: str) -> float:
    """Return the number of endpoints of the picker at an address; -1 while it does not answer."""
    try:
        with urllib.request.urlopen(f"http://{address}:9090/metrics", timeout=20) as page:
            lines = page.read().decode().splitlines()
    except OSError:
        return -1.0
    return next((float(line.split()[-1]) for line in lines if line.startswith("llm_d_epp_ready_endpoints{")), -1.0)


def follows(here: Cluster, number: int) -> None:
    """Wait until a picker of the release has exactly ``number`` endpoints."""

    def found() -> list[float]:
        pods = here.pods("llm-d-router-standalone=my-epp")
        return [endpoints_at(pod["status"]["podIP"]) for pod in pods if "podIP" in pod["status"]]

    here.until(lambda: number in found(), lambda: f"not {number} endpoints: {found()}", within_s=30)


def until_after(moment: float) -> None:
    """Wait for a moment of the monotonic clock: what is tested is what a span of time does."""
    time.sleep(max(0.0, moment - time.monotonic()))


def scale(here: Cluster, number: int) -> None:
    here.kubectl("scale", "deployment/engines", f"--replicas={number}")
    here.rolled_out("engines")
    follows(here, number)


@pytest.mark.usefixtures("same_footprint")
def test_without_etcd_and_then_the_api_server_for_a_minute_requests_are_served(here: Cluster, load: Load) -> None:
    address = picker_address(here)
    engine, leaving = here.pods("app=engines")[:2]
    here.kubectl("scale", "deployment/engines", "--replicas=5")  # pods come while the outage begins
    here.plane.kill("etcd")
    began = time.monotonic()
    until_after(began + OUTAGE_S / 3)  # the API server is there, and answers with failures
    here.plane.kill("kube-apiserver")
    until_after(began + OUTAGE_S / 2)
    here.kill(engine, "engine")  # its node starts it again without the API server
    killed = time.monotonic()
    until_after(began + OUTAGE_S)
    here.plane.start_etcd()
    here.plane.start_api_server()
    returned, known = time.monotonic(), endpoints_at(address)
    metadata = leaving["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
    here.plane.request("PATCH", path, {"metadata": {"labels": {"app": None}}}, "application/merge-patch+json")
    here.until(lambda: endpoints_at(address) != known, lambda: f"{known} endpoints as before", within_s=30)
    obeyed = time.monotonic() - returned
    here.restart_controllers()
    scale(here, 4)
    load.serves()
    print(f"picks obey {obeyed:.2f} s after the API server is ready; {len(load.lost)} unavoidable losses")
    assert load.lost_outside((killed - IN_FLIGHT_S, killed + IN_FLIGHT_S)) == []
    assert len(load.lost) <= 4  # one of each thread may have been with the engine that was killed
    assert obeyed < OBEYED_S


@pytest.mark.usefixtures("same_footprint")
def test_pods_that_changed_before_a_compaction_are_followed(here: Cluster, load: Load) -> None:
    here.plane.kill("kube-apiserver")
    here.resume()
    here.kubectl("scale", "deployment/engines", "--replicas=2")
    here.plane.compact()
    follows(here, 2)
    scale(here, 4)
    assert load.lost == []


@pytest.mark.usefixtures("same_footprint")
def test_a_rollout_of_the_engines_loses_no_request(here: Cluster, load: Load) -> None:
    here.kubectl("rollout", "restart", "deployment/engines")
    here.rolled_out("engines")
    follows(here, 3)
    load.serves()
    assert load.lost == []


def test_a_rollout_of_the_picker_loses_no_request(here: Cluster, load: Load) -> None:
    here.kubectl("rollout", "restart", "deployment/my-epp")
    here.rolled_out("my-epp")
    follows(here, 3)
    load.serves()
    assert load.lost == []


def test_a_rollout_of_picker_and_engines_at_once_loses_no_request(here: Cluster, load: Load) -> None:
    here.kubectl("rollout", "restart", "deployment/my-epp", "deployment/engines")
    here.rolled_out("my-epp", "engines")
    follows(here, 3)
    load.serves()
    assert load.lost == []


@pytest.mark.usefixtures("same_footprint")
def test_a_token_of_a_new_key_is_used_when_the_old_one_is_worth_nothing(here: Cluster, load: Load) -> None:
    here.plane.kill("kube-apiserver")
    here.plane.new_service_account_key()
    here.resume()
    here.renew_tokens()
    scale(here, 4)
    load.serves()
    assert load.lost == []


@pytest.mark.usefixtures("same_footprint")
def test_a_new_certificate_authority_is_trusted_once_it_is_published(here: Cluster, load: Load) -> None:
    here.plane.kill("kube-apiserver")
    for file in here.plane.authority.parent.iterdir():
        file.unlink()
    here.resume()
    scale(here, 4)
    load.serves()
    assert load.lost == []


def test_a_namespace_that_is_deleted_and_made_again_under_load_costs_the_others_nothing(
    here: Cluster, load: Load
) -> None:
    with Load(f"{release(here, 'brief')}:8081") as brief:
        brief.serves()
        deleted = time.monotonic()
        here.kubectl("delete", "namespace", "brief", "--timeout=90s")
    with Load(f"{release(here, 'brief')}:8081") as again:
        again.serves()
    load.serves()
    print(
        f"{len(brief.lost)} requests to the namespace were lost after its deletion, of {brief.served} before and then"
    )
    assert brief.lost_outside((deleted, math.inf)) == []
    assert again.lost == []
    assert load.lost == []


def release(here: Cluster, name: str) -> str:
    """Install a release and its engine in a namespace of its own, and return the address of its proxy."""
    here.kubectl("create", "namespace", name)
    there = ("--namespace", name)
    here.kubectl("apply", "-f", "-", *there, text=json.dumps(engines(1)))
    here.helm("install", name, str(CHART), *there, *VALUES, "--wait", "--timeout", "90s")
    here.kubectl("rollout", "status", "deployment/engines", *there, "--timeout=60s")
    here.until(lambda: serves(here, name), here.story)
    return here.address(f"{name}-proxy", name)


def serves(here: Cluster, name: str) -> bool:
    try:
        return bool(complete(f"{here.address(f'{name}-proxy', name)}:8081")["object"] == "text_completion")
    except OSError:
        return False


def test_a_thousand_pods_that_are_replaced_lose_no_request(here: Cluster, tmp_path: Path) -> None:
    here.kubectl("create", "namespace", "many")
    for one in picker():
        here.kubectl("apply", "-n", "many", "-f", "-", text=json.dumps(one))
    here.kubectl("rollout", "status", "deployment/picker", "-n", "many", "--timeout=60s")
    address = here.address("picker", "many")

    def has_all() -> None:
        here.until(lambda: endpoints_at(address) == MANY, lambda: f"{endpoints_at(address)} endpoints")

    with one_engine_for_all(tmp_path):
        pods, old = Pods(here, "many"), named("old", MANY, 0)
        pods.replace({}, old)
        has_all()
        with Load(address) as load:
            load.serves()
            pods.replace(old, named("new", MANY, MANY))
            has_all()
            load.serves()
    assert load.lost == []
    here.kubectl("delete", "namespace", "many", "--wait=false")
