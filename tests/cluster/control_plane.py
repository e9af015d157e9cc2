"""A real Kubernetes control plane: etcd and kube-apiserver on free loopback ports.

It has no nodes: pods are objects whose status the tests write, as a kubelet would. ``cluster.py`` has a node.
"""

from __future__ import annotations

import json
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.cluster.environment import program
from tests.cluster.node.network import TIED
from tests.epp.kube.certificates import Authority

ADMIN = "admin-of-this-test"
START_S = 60.0


class ControlPlane:
    """One API server. Requests to it block; they are the test's, not the picker's."""

    def __init__(self, folder: Path, address: str = "127.0.0.1") -> None:
        self.folder, self.address = folder, address
        self._etcd_port, self._peer_port, self.port = free_port(), free_port(), free_port()
        self.url = f"https://{address}:{self.port}"
        self.authority = folder / "certificates" / "apiserver.crt"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.flags: tuple[str, ...] = ("--disable-admission-plugins", "ServiceAccount")
        (folder / "certificates").mkdir()
        self.clients = Authority()
        """Signs certificates of users, whom the API server knows by their common name."""
        (folder / "clients.crt").write_bytes(self.clients.pem)
        (folder / "tokens.csv").write_text(f'{ADMIN},admin,1,"system:masters"\n')
        self.key = folder / "service-accounts.key"
        self.new_service_account_key()

    def new_service_account_key(self) -> None:
        """Write a key for the tokens of service accounts, which the API server reads when it starts."""
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )

    def start(self) -> None:
        """Start both processes. Raises: AssertionError, with the end of the log, if the API is not ready in time."""
        self.start_etcd()
        self.start_api_server()

    def start_etcd(self) -> None:
        """Start etcd on its data."""
        url, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        self.run(
            "etcd", [str(program("etcd")), "--data-dir", str(self.folder / "data"), "--listen-client-urls", url,
                     "--advertise-client-urls", url, "--listen-peer-urls", peer],
        )  # fmt: skip

    def start_api_server(self) -> None:
        """Start the API server and wait until it is ready."""
        folder = self.folder
        self.run(
            "kube-apiserver",
            [str(program("kube-apiserver")), "--etcd-servers", f"http://127.0.0.1:{self._etcd_port}",
             "--secure-port", str(self.port), "--bind-address", self.address,
             "--cert-dir", str(folder / "certificates"), "--token-auth-file", str(folder / "tokens.csv"),
             "--client-ca-file", str(folder / "clients.crt"),
             "--authorization-mode", "RBAC", "--service-account-issuer", "https://kubernetes.default.svc",
             "--service-account-key-file", str(self.key), "--service-account-signing-key-file", str(self.key),
             "--service-cluster-ip-range", "10.0.0.0/24", *self.flags],
        )  # fmt: skip
        deadline = time.monotonic() + START_S
        while not self.is_ready():
            log = (folder / "kube-apiserver.log").read_text()
            assert time.monotonic() < deadline, log[-2000:]
            assert self._processes["kube-apiserver"].poll() is None, log[-2000:]
            time.sleep(0.1)

    def kill(self, name: str) -> None:
        """End one of the processes without notice."""
        process = self._processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to one of the processes."""
        self._processes[name].send_signal(number)

    def stop(self) -> None:
        """End all processes, the newest first."""
        for name in reversed(list(self._processes)):
            self.kill(name)

    def compact(self) -> None:
        """Make etcd forget every version but its newest."""
        status = self._etcd("/v3/maintenance/status", {})
        self._etcd("/v3/kv/compaction", {"revision": status["header"]["revision"], "physical": True})

    def request(self, method: str, path: str, body: object = None, content: str = "application/json") -> Any:
        """Return the object that the API answers with. Raises: AssertionError for a refusal, with its text."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": content}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, context=self._trust(), timeout=30) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read().decode()}") from None

    def put_pod(self, pod: dict[str, Any]) -> None:
        """Create a pod with its status, without the fields that the API server writes itself."""
        generated = ("uid", "creationTimestamp", "deletionTimestamp")
        metadata = {name: value for name, value in pod["metadata"].items() if name not in generated}
        spec = {**pod["spec"], "nodeName": "node-1"}
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            container.setdefault("image", "vllm")
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"
        made = self.request("POST", path, {**pod, "metadata": metadata, "spec": spec, "status": {}})
        self.set_status(made["metadata"]["namespace"], made["metadata"]["name"], pod["status"])

    def set_status(self, namespace: str, name: str, status: dict[str, Any]) -> None:
        """Write a pod's status, as its kubelet would."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        self.request("PATCH", path, {"status": status}, "application/strategic-merge-patch+json")

    def delete_pod(self, namespace: str, name: str) -> None:
        """Delete a pod at once."""
        self.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}", {"gracePeriodSeconds": 0})

    def token_for(self, namespace: str, name: str) -> str:
        """Return a token of a service account, which is made for it."""
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        self.request("POST", accounts, {"metadata": {"name": name}})
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
        token: str = self.request("POST", f"{accounts}/{name}/token", review)["status"]["token"]
        return token

    def allow(self, namespace: str, name: str, rules: list[dict[str, Any]]) -> None:
        """Give a service account a Role with ``rules``."""
        group = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
        self.request("POST", f"{group}/roles", {"metadata": {"name": name}, "rules": rules})
        binding = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }
        self.request("POST", f"{group}/rolebindings", binding)

    def allow_everywhere(self, namespace: str, name: str, rules: list[dict[str, Any]]) -> None:
        """Give a service account a ClusterRole with ``rules``."""
        group, cluster_role = "/apis/rbac.authorization.k8s.io/v1", f"{namespace}-{name}"
        self.request("POST", f"{group}/clusterroles", {"metadata": {"name": cluster_role}, "rules": rules})
        binding = {
            "metadata": {"name": cluster_role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": cluster_role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }
        self.request("POST", f"{group}/clusterrolebindings", binding)

    def _etcd(self, path: str, body: object) -> Any:
        url = f"http://127.0.0.1:{self._etcd_port}{path}"
        with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=30) as response:
            return json.load(response)

    def _trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.authority))

    def is_ready(self) -> bool:
        """Return whether the API server says that it is ready."""
        request = urllib.request.Request(f"{self.url}/readyz", headers={"Authorization": f"Bearer {ADMIN}"})
        try:
            with urllib.request.urlopen(request, context=self._trust(), timeout=5) as response:
                return bool(response.status == 200)
        except OSError:  # no connection, no certificate yet, or not ready
            return False

    def run(self, name: str, command: list[str], cwd: Path | None = None) -> None:
        """Start a process of the control plane, which writes to ``NAME.log``."""
        with (self.folder / f"{name}.log").open("ab") as log:
            tied = [*TIED, *command] if shutil.which(TIED[0]) else command  # it ends when the tests are killed
            self._processes[name] = subprocess.Popen(tied, stdout=log, stderr=log, cwd=cwd or self.folder)


def free_port() -> int:
    """Return a port that no program has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def control_plane(folder: Path) -> Iterator[ControlPlane]:
    """Run a control plane. Raises: Unavailable if a program is missing."""
    for name in ("etcd", "kube-apiserver"):
        program(name)
    plane = ControlPlane(folder)
    with ExitStack() as stack:
        stack.callback(plane.stop)
        plane.start()
        yield plane
