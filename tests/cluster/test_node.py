"""Pods that are processes: a picker and its Envoy in one pod serve requests from simulated engines in others."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.workloads import complete, deployment, engines, picker, service

pytestmark = pytest.mark.timeout(240)
KILLED = """
import pathlib, sys, time
from tests.cluster.cluster import cluster
from tests.cluster.workloads import engines
with cluster(pathlib.Path(sys.argv[1])) as here:
    here.apply(engines(1))
    here.rolled_out("engines")
    print("up", flush=True)
    time.sleep(600)
"""


def test_a_request_goes_through_envoy_and_the_picker_to_an_engine(here: Cluster) -> None:
    here.apply(engines(2), *picker())
    here.rolled_out("engines", "picker")
    address = here.address("picker")
    assert complete(address)["object"] == "text_completion"
    with urllib.request.urlopen(f"http://{address}:9090/metrics", timeout=5) as page:
        assert 'llm_d_epp_ready_endpoints{name="picker"} 2.0' in page.read().decode()
    assert "2 pods, 2 endpoints" in here.log("picker", "-c", "epp")


def test_a_pod_resolves_the_names_of_services_and_reaches_them(here: Cluster) -> None:
    script = "import urllib.request as u; print(u.urlopen('http://named.default/health').status)"
    spec = {"containers": [{"name": "asks", "image": "python", "args": ["-c", script]}], "restartPolicy": "Never"}
    here.apply(engines(1, "named"), service("named", {"set": "named"}, {80: 8000}))
    here.rolled_out("named")
    here.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asks"}, "spec": spec})
    here.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/asks", "--timeout=30s")
    assert here.kubectl("logs", "asks") == "200\n"


def test_a_pod_sees_its_volumes_and_a_changed_config_map(here: Cluster) -> None:
    script = """
    id -u; cat /config/a /fields/name; echo; ls /var/run/secrets/kubernetes.io/serviceaccount
    echo kept > /shared/by-init; touch /root-is-read-only || echo read-only
    until grep -q second /config/a; do sleep 0.1; done; cat /config/a; trap 'exit 0' TERM; sleep 3600 & wait
    """
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "files"}, "data": {"a": "first\n"}}
    fields = {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}
    mounts = {"config": "/config", "fields": "/fields", "shared": "/shared"}
    container = {
        "name": "main", "image": "busybox", "args": ["-c", script],
        "securityContext": {"runAsUser": 4711, "readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()],
    }  # fmt: skip
    volumes = [
        {"name": "config", "configMap": {"name": "files"}},
        {"name": "fields", "downwardAPI": fields},
        {"name": "shared", "emptyDir": {}},
    ]
    here.apply(deployment("reader", 1, {"app": "reader"}, {"containers": [container], "volumes": volumes}))
    here.until(
        lambda: "not found" in here.kubectl("get", "pods", "-l", "app=reader", "-o", "yaml"),
        lambda: "the pod does not wait for its ConfigMap",
    )
    here.apply(config)
    here.rolled_out("reader")
    read = "4711\nfirst\nreader-"
    here.until(lambda: here.log("reader").startswith(read), lambda: here.log("reader"))
    config["data"] = {"a": "second\n"}
    here.apply(config)
    here.until(lambda: here.log("reader").endswith("second\n"), lambda: here.log("reader"))
    log = here.log("reader")
    assert "ca.crt\nnamespace\ntoken\n" in log
    assert "read-only" in log


def test_a_container_that_fails_starts_again_and_an_ended_pod_is_gone(here: Cluster) -> None:
    spec = {"name": "main", "image": "busybox", "args": ["-c", "echo once more; exit 3"]}
    here.apply(deployment("failing", 1, {"app": "failing"}, {"containers": [spec]}))

    def status() -> dict[str, object]:
        (pod,) = here.get("pods", "-l", "app=failing")["items"] or [{"status": {}}]
        return (pod["status"].get("containerStatuses") or [{"restartCount": 0}])[0]

    here.until(lambda: int(str(status()["restartCount"])) >= 2, lambda: str(status()))
    assert '"exitCode": 3' in here.kubectl("get", "pods", "-l", "app=failing", "-o", "json")
    here.kubectl("delete", "deployment", "failing")
    here.kubectl("wait", "--for=delete", "pod", "-l", "app=failing", "--timeout=30s")


def test_a_command_runs_in_a_container_and_its_end_is_known(here: Cluster) -> None:
    here.apply(engines(1, "shell"))
    here.rolled_out("shell")
    run = ("exec", "deployment/shell", "--")
    assert here.kubectl(*run, "sh", "-c", "hostname; echo $$").startswith("shell-")
    assert here.kubectl("exec", "-i", "deployment/shell", "--", "tr", "a", "b", text="abc" * 100_000) == "bbc" * 100_000
    assert "exit code 7" in here.kubectl(*run, "sh", "-c", "exit 7", wrong=True)


def test_a_port_of_a_service_is_forwarded(here: Cluster) -> None:
    here.apply(engines(1, "forwarded"), service("forwarded", {"set": "forwarded"}, {80: 8000}))
    here.rolled_out("forwarded")
    with here.forwarded("service/forwarded", 80) as address:
        for _ in range(3):
            assert complete(address)["object"] == "text_completion"


@pytest.mark.cluster
def test_a_test_run_that_is_killed_leaves_no_process(here: Cluster, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "up\n"
        assert len(using(tmp_path)) >= 6  # etcd, three of Kubernetes, a container and what holds it
        run.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while left := using(tmp_path):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def using(folder: Path) -> list[str]:
    """Return the processes whose command names ``folder``."""
    commands = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                commands.append((process / "cmdline").read_text().replace("\0", " "))
            except OSError:
                continue  # it has ended
    return [command for command in commands if str(folder) in command]
