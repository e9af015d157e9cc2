"""Outages under load: no request is lost but those that nothing could have saved, and nothing is left over."""

from __future__ import annotations

import json
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
OUTAGE_S = 20.0
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


def follows(here: Cluster, number: int) -> None:
    """Wait until the picker has exactly ``number`` endpoints."""
    last = ""

    def has_them() -> bool:
        nonlocal last
        for pod in here.pods("llm-d-router-standalone=my-epp"):
            try:
                with urllib.request.urlopen(f"http://{pod['status']['podIP']}:9090/metrics", timeout=5) as page:
                    lines = page.read().decode().splitlines()
            except (OSError, KeyError):
                continue  # not up yet
            last = str([line for line in lines if line.startswith("llm_d_epp_ready_endpoints{")])
            if f" {number:.1f}'" in last:
                return True
        return False

    here.until(has_them, lambda: f"not {number} endpoints: {last}", within_s=30)


def scale(here: Cluster, number: int) -> None:
    here.kubectl("scale", "deployment/engines", f"--replicas={number}")
    here.rolled_out("engines")
    follows(here, number)


@pytest.mark.usefixtures("same_footprint")
def test_while_the_api_server_is_away_requests_are_served_by_the_pods_that_live(here: Cluster, load: Load) -> None:
    engine = here.pods("app=engines")[0]
    here.plane.kill("kube-apiserver")
    time.sleep(OUTAGE_S / 4)
    here.kill(engine, "engine")  # its node starts it again without the API server
    killed = time.monotonic()
    time.sleep(OUTAGE_S)
    here.resume()
    assert load.lost_outside((killed - IN_FLIGHT_S, killed + IN_FLIGHT_S)) == []
    scale(here, 4)
    load.serves()
    assert load.lost_outside((killed - IN_FLIGHT_S, killed + IN_FLIGHT_S)) == []
    assert len(load.lost) <= 4  # one of each thread may have been with the engine that was killed


@pytest.mark.usefixtures("same_footprint")
def test_while_etcd_is_away_requests_are_served(here: Cluster, load: Load) -> None:
    here.plane.kill("etcd")
    time.sleep(OUTAGE_S)
    here.plane.start_etcd()
    here.plane.kill("kube-apiserver")  # else it may wait for etcd for a minute
    here.resume()
    scale(here, 4)
    load.serves()
    assert load.lost == []


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


def test_a_namespace_that_is_deleted_and_made_again_is_served_again(here: Cluster) -> None:
    here.kubectl("create", "namespace", "brief")
    there = ("--namespace", "brief")
    here.kubectl("apply", "-f", "-", *there, text=json.dumps(engines(1)))
    here.helm("install", "brief", str(CHART), *there, *VALUES, "--wait", "--timeout", "90s")
    here.kubectl("rollout", "status", "deployment/engines", *there, "--timeout=60s")
    assert complete(f"{here.address('brief-proxy', 'brief')}:8081")["object"] == "text_completion"
    here.kubectl("delete", "namespace", "brief", "--timeout=90s")
    here.kubectl("create", "namespace", "brief")
    here.kubectl("apply", "-f", "-", *there, text=json.dumps(engines(1)))
    here.helm("install", "brief", str(CHART), *there, *VALUES, "--wait", "--timeout", "90s")
    here.kubectl("rollout", "status", "deployment/engines", *there, "--timeout=60s")
    assert complete(f"{here.address('brief-proxy', 'brief')}:8081")["object"] == "text_completion"


def test_a_thousand_pods_that_are_replaced_lose_no_request(here: Cluster, tmp_path: Path) -> None:
    here.kubectl("create", "namespace", "many")
    for one in picker():
        here.kubectl("apply", "-n", "many", "-f", "-", text=json.dumps(one))
    here.kubectl("rollout", "status", "deployment/picker", "-n", "many", "--timeout=60s")
    address = here.address("picker", "many")
    with one_engine_for_all(tmp_path):
        pods, old = Pods(here, "many"), named("old", MANY, 0)
        pods.replace({}, old)
        endpoints_of(here, address, MANY)
        with Load(address) as load:
            load.serves()
            pods.replace(old, named("new", MANY, MANY))
            endpoints_of(here, address, MANY)
            load.serves()
    assert load.lost == []
    here.kubectl("delete", "namespace", "many", "--wait=false")


def endpoints_of(here: Cluster, address: str, number: int) -> None:
    """Wait until the picker at an address has exactly ``number`` endpoints."""
    last = ""

    def has_them() -> bool:
        nonlocal last
        with urllib.request.urlopen(f"http://{address}:9090/metrics", timeout=20) as page:
            lines = page.read().decode().splitlines()
        last = str([line for line in lines if line.startswith("llm_d_epp_ready_endpoints{")])
        return f" {number:.1f}'" in last

    here.until(has_them, lambda: f"not {number} endpoints: {last}")
