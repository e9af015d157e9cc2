"""A whole cluster of processes: control plane, controllers, and one node whose pods are processes.

The test that uses it runs in the cluster's network itself: it reaches pods and services at their addresses.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import yaml

from tests.cluster.control_plane import ADMIN, ControlPlane
from tests.cluster.environment import program
from tests.cluster.node.network import GATEWAY, network

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0
T = TypeVar("T")


class Cluster:
    """A running cluster; ``plane`` is its API."""

    def __init__(self, folder: Path, mirrors: Mapping[str, str]) -> None:
        self.folder, self._mirrors = folder, mirrors
        self.plane = ControlPlane(folder, GATEWAY)
        self.plane.flags = ("--kubelet-preferred-address-types", "InternalIP", "--api-audiences",
                            "https://kubernetes.default.svc")  # fmt: skip
        self.kubeconfig = folder / "kubeconfig"

    def start(self) -> None:
        """Start everything. Raises: AssertionError with the end of a log."""
        self.plane.start()
        self._write_kubeconfig()
        self.start_controllers()
        node = self.folder / "node"
        node.mkdir()
        words = [self.plane.url, str(self.plane.authority), ADMIN, str(node)]
        words += [f"{name}={instead}" for name, instead in self._mirrors.items()]
        self.plane.run("kubelet", [sys.executable, "-m", "tests.cluster.node.kubelet", *words], cwd=ROOT)
        log = self.folder / "kubelet.log"
        self.until(lambda: "ready" in log.read_text(), lambda: f"no kubelet: {log.read_text()[-2000:]}")

    def resume(self) -> None:
        """Start the API server, and the controllers anew, which would wait up to a minute before they ask it again."""
        self.plane.start_api_server()
        self.restart_controllers()

    def restart_controllers(self) -> None:
        """Start the controllers anew."""
        self.plane.kill("kube-controller-manager")
        self.start_controllers()

    def start_controllers(self) -> None:
        """Start kube-controller-manager, which publishes the API server's certificate authority as it is now."""
        self.plane.run(
            "kube-controller-manager",
            [str(program("kube-controller-manager")), "--kubeconfig", str(self.kubeconfig), "--leader-elect=false",
             "--service-account-private-key-file", str(self.plane.key), "--root-ca-file", str(self.plane.authority),
             "--secure-port", "0", "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller"],
        )  # fmt: skip

    def renew_tokens(self) -> None:
        """Make the node replace every pod's token now."""
        self.plane.signal("kubelet", signal.SIGHUP)

    def kubectl(self, *words: str, text: str | None = None, wrong: bool = False) -> str:
        """Return what kubectl prints. Raises: AssertionError if it fails, or if it does not while ``wrong``."""
        return self._command("kubectl", words, text, wrong)

    def helm(self, *words: str, wrong: bool = False) -> str:
        """Return what helm prints. Raises: AssertionError if it fails, or if it does not while ``wrong``."""
        try:
            return self._command("helm", words, None, wrong)
        except AssertionError as failed:
            raise AssertionError(f"{failed}\n{self.story()}") from None

    def apply(self, *objects: dict[str, Any]) -> None:
        """Apply objects as a user would."""
        self.kubectl("apply", "-f", "-", text=yaml.safe_dump_all(objects))

    def get(self, *words: str) -> Any:
        """Return what ``kubectl get`` finds, decoded."""
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def rolled_out(self, *deployments: str) -> None:
        """Wait until Deployments have all their pods ready. Raises: AssertionError with what the pods say."""
        for name in deployments:
            try:
                self.kubectl("rollout", "status", f"deployment/{name}", f"--timeout={PATIENCE_S:.0f}s")
            except AssertionError as late:
                raise AssertionError(f"{late}\n{self.story()}") from None

    def address(self, service: str, namespace: str = "default") -> str:
        """Return the cluster address of a Service."""
        found: str = self.plane.request("GET", f"/api/v1/namespaces/{namespace}/services/{service}")["spec"][
            "clusterIP"
        ]
        return found

    def log(self, deployment: str, *words: str) -> str:
        """Return the log of one pod of a Deployment."""
        return self.kubectl("logs", f"deployment/{deployment}", *words)

    @contextmanager
    def forwarded(self, target: str, port: int) -> Iterator[str]:
        """Run ``kubectl port-forward`` to a port of ``target``, and yield the address that it listens on."""
        words = [str(program("kubectl")), "port-forward", target, f":{port}"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=self._environment()) as process:
            try:
                assert process.stdout is not None
                told = process.stdout.readline()
                assert told.startswith("Forwarding from 127.0.0.1:"), told
                yield told.split()[2]
            finally:
                process.terminate()

    def pods(self, selector: str) -> list[dict[str, Any]]:
        """Return the pods that a label selector matches and that are not being deleted."""
        found = self.get("pods", "-l", selector)["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def pid(self, pod: dict[str, Any], container: str) -> int:
        """Return PID 1 of a container, as this machine numbers it."""
        script = f"/pods/{pod['metadata']['uid']}/containers/{container}-"
        starters = [process for process in Path("/proc").iterdir() if script in _command_of(process)]
        children = [(one / "task" / one.name / "children").read_text().split() for one in starters]
        (first,) = [child for found in children for child in found]
        return int(first)

    def kill(self, pod: dict[str, Any], container: str) -> None:
        """End PID 1 of a container without notice, as a kernel that is out of memory does."""
        os.kill(self.pid(pod, container), signal.SIGKILL)

    def story(self) -> str:
        """Return what pods and logs say, for a test that failed."""
        logs = "".join(f"{log.name}:\n{log.read_text()[-1500:]}\n" for log in self.folder.glob("node/pods/*/logs/*"))
        kubelet = (self.folder / "kubelet.log").read_text()[-3000:]
        return f"{self.kubectl('get', 'pods', '-A', '-o', 'wide')}\n{logs}\n{kubelet}"

    def until(self, holds: Callable[[], T], story: Callable[[], str], within_s: float = PATIENCE_S) -> T:
        """Return the first true answer of ``holds``. Raises: AssertionError with ``story`` when time is over."""
        deadline = time.monotonic() + within_s
        while not (answer := holds()):
            assert time.monotonic() < deadline, story()
            time.sleep(0.05)
        return answer

    def _command(self, name: str, words: tuple[str, ...], text: str | None, wrong: bool) -> str:
        command = [str(program(name)), *words]
        ran = subprocess.run(command, input=text, capture_output=True, text=True, env=self._environment(), check=False)
        assert bool(ran.returncode) == wrong, f"{' '.join(words)}: {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout + (ran.stderr if wrong else "")

    def _environment(self) -> dict[str, str]:
        return {
            "KUBECONFIG": str(self.kubeconfig), "HOME": str(self.folder), "PATH": "/usr/bin:/bin",
            "HELM_CACHE_HOME": str(self.folder / "helm"),
        }  # fmt: skip

    def _write_kubeconfig(self) -> None:
        server = {"server": self.plane.url, "certificate-authority": str(self.plane.authority)}
        context = {"cluster": "tests", "user": "admin", "namespace": "default"}
        self.kubeconfig.write_text(yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "current-context": "tests",
            "clusters": [{"name": "tests", "cluster": server}],
            "users": [{"name": "admin", "user": {"token": ADMIN}}],
            "contexts": [{"name": "tests", "context": context}],
        }))  # fmt: skip


def _command_of(process: Path) -> str:
    """Return the command of a process that starts a container; nothing for any other."""
    try:
        words = (process / "cmdline").read_text().split("\0")
    except OSError:  # no process, or one that has ended
        return ""
    return words[-2] if words[0] == "unshare" else ""


@contextmanager
def cluster(folder: Path, mirrors: Mapping[str, str] = MappingProxyType({})) -> Iterator[Cluster]:
    """Run a cluster, and the calling thread in its network. Raises: Unavailable if something is missing.

    Of ``mirrors``, each is the last part of an image's name, and that of the image which the node runs instead.
    """
    for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl"):
        program(name)
    with network():
        running = Cluster(folder, mirrors)
        try:
            running.start()
            yield running
        finally:
            running.plane.stop()
