"""A picker as a process with a pod's credentials, in front of a simulated engine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from epp.kube.groups import GROUP
from tests.cluster.control_plane import ControlPlane, control_plane, free_port
from tests.cluster.crds import install
from tests.cluster.environment import Unavailable
from tests.epp.discovery.pods import written

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
MOUNTED = 'mount -t tmpfs none /var/run && mkdir -p "$1" && cp -r "$2"/. "$1" && shift 2 && exec "$@"'
"""Run a command with a folder of its own where a pod has its credentials, in a mount namespace."""
PATIENCE_S = 60.0
REVIEWS = [
    {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
    {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
]


def needs_mounts() -> None:
    """Raise Unavailable where a process cannot have mounts of its own."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        raise Unavailable("a pod's credentials are mounted for one process, which needs root and unshare")


@contextmanager
def running(*command: str, environment: dict[str, str] | None = None) -> Iterator[None]:
    process = subprocess.Popen(command, env={**os.environ, **(environment or {})})
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(30) == 0


def page(port: int, path: str, token: str = "") -> str:
    """Return a page of the metrics port, or nothing while there is none; what is refused is its body."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=5) as response:
            return str(response.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()
    except OSError:
        return ""


def until(port: int, path: str, text: str, token: str = "") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while text not in (last := page(port, path, token)):
        assert time.monotonic() < deadline, f"{path} never had {text!r}; the last one: {last[:500]}"
        time.sleep(0.05)


def serve(plane: ControlPlane, folder: Path, port: int, ext_proc: int) -> None:
    """Follow one pod, which is a simulated engine on this machine, from the missing Role to fresh metrics."""
    ports = ("--grpc-port", str(free_port()), "--grpc-health-port", str(free_port()), "--metrics-port", str(ext_proc))
    words = ("--endpoint-selector", "app=vllm", "--endpoint-target-ports", str(port), "--pool-namespace", "default")
    tierwise = str(Path(sys.executable).with_name("tierwise"))
    command = (tierwise, "serve", "--host", "127.0.0.1", "--debug=false", *ports, *words)
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(plane.port),
                   "POD_NAME": "my-epp-0"}  # fmt: skip
    reader = plane.token_for("default", "reader")
    plane.allow_everywhere("default", "reader", [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}])
    with running(tierwise, "sim", "--endpoints", "1", "--port", str(port)):
        mounted = ("unshare", "--mount", "sh", "-c", MOUNTED, "sh", ACCOUNT, str(folder))
        with running(*mounted, *command, environment=environment):
            until(ext_proc, "/readyz", "a Role with this rule is missing")
            assert "no bearer token" in page(ext_proc, "/metrics")
            assert "the picker may not ask for it" in page(ext_proc, "/metrics", reader)
            plane.allow_everywhere("default", "picker", REVIEWS)
            until(ext_proc, "/metrics", "tierwise_discovery_current 0.0", reader)
            plane.allow("default", "picker", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}])
            until(ext_proc, "/readyz", "ready, but there are no endpoints")
            pod = written("engine-0", ip="127.0.0.1")
            plane.put_pod(pod)
            until(ext_proc, "/metrics", f'tierwise_endpoint_fresh{{endpoint="127.0.0.1:{port}"}} 1.0', reader)
            assert 'llm_d_epp_ready_endpoints{name="my-epp"} 1.0' in page(ext_proc, "/metrics", reader)
            plane.delete_pod("default", "engine-0")
            until(ext_proc, "/readyz", "ready, but there are no endpoints")


def serve_pool(plane: ControlPlane, folder: Path, port: int, metrics: int) -> None:
    """Follow an InferencePool whose definition, right and object come one by one, and through an outage."""
    ports = ("--grpc-port", str(free_port()), "--grpc-health-port", str(free_port()), "--metrics-port", str(metrics))
    words = ("--pool-name", "mine", "--pool-namespace", "default", "--metrics-endpoint-auth=false")
    tierwise = str(Path(sys.executable).with_name("tierwise"))
    command = (tierwise, "serve", "--host", "127.0.0.1", "--debug=false", *ports, *words)
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(plane.port)}
    pools = f"/apis/{GROUP}/v1/namespaces/default/inferencepools"
    pool = {
        "apiVersion": f"{GROUP}/v1", "kind": "InferencePool", "metadata": {"name": "mine"},
        "spec": {"selector": {"matchLabels": {"app": "vllm"}}, "targetPorts": [{"number": port}],
                 "endpointPickerRef": {"name": "mine-epp", "port": {"number": 9002}}},
    }  # fmt: skip
    may_read = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
        {"apiGroups": [GROUP], "resources": ["inferencepools"], "verbs": ["list", "watch"]},
    ]
    with running(tierwise, "sim", "--endpoints", "1", "--port", str(port)):
        mounted = ("unshare", "--mount", "sh", "-c", MOUNTED, "sh", ACCOUNT, str(folder))
        with running(*mounted, *command, environment=environment):
            until(metrics, "/readyz", "not ready: there is no list of endpoints: InferencePool default/mine cannot")
            plane.allow("default", "picker", may_read)
            install(plane, "inference-v1.5.0", kinds=("InferencePool",))
            until(metrics, "/readyz", f"InferencePool default/mine does not exist in {GROUP}/v1")
            plane.put_pod(written("engine-0", ip="127.0.0.1"))
            plane.request("POST", pools, pool)
            until(metrics, "/metrics", f'tierwise_endpoint_fresh{{endpoint="127.0.0.1:{port}"}} 1.0')
            assert 'llm_d_epp_ready_endpoints{name="mine"} 1.0' in page(metrics, "/metrics")
            plane.kill("kube-apiserver")
            until(metrics, "/readyz", "ready, but the list of endpoints may be out of date")
            assert "tierwise_discovery_loaded 1.0" in page(metrics, "/metrics")
            plane.start_api_server()
            until(metrics, "/metrics", "tierwise_discovery_current 1.0")
            plane.request("DELETE", f"{pools}/mine")
            until(metrics, "/readyz", "not ready: there is no list of endpoints: InferencePool default/mine does not")


@pytest.mark.parametrize("scenario", [serve, serve_pool])
def test_a_picker_in_a_pod_follows_the_pods_that_are_selected(
    tmp_path: Path, scenario: Callable[[ControlPlane, Path, int, int], None]
) -> None:
    needs_mounts()
    with control_plane(tmp_path) as plane:
        folder = tmp_path / "account"
        folder.mkdir()
        (folder / "token").write_text(plane.token_for("default", "picker"))
        shutil.copy(plane.authority, folder / "ca.crt")
        scenario(plane, folder, free_port(), free_port())
