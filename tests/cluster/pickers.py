"""Several pickers of one pool, as processes with a pod's credentials, and the kubelet's reports about their pods."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from epp.extproc.service import PROCESS
from epp.kube.election.lease import lease_name, leases_path
from epp.pb.ext_proc_pb2 import ProcessingResponse
from tests.cluster.control_plane import ControlPlane, free_port
from tests.cluster.test_picker import ACCOUNT, MOUNTED, page, running
from tests.epp.discovery.pods import written
from tests.epp.doubles import request_body, request_headers

PATIENCE_S = 60.0
RULES: list[dict[str, Any]] = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
     "verbs": ["get", "list", "watch", "create", "patch"]},
]  # fmt: skip
TIERWISE = str(Path(sys.executable).with_name("tierwise"))
BODY = b'{"model": "Qwen/Qwen3-32B", "prompt": "which picker?"}'


class Picker:
    """One process, and its pod."""

    def __init__(self, site: Site, name: str, *words: str) -> None:
        self.site, self.name = site, name
        self.ext_proc, self.health, self.metrics = free_port(), free_port(), free_port()
        ports = ("--grpc-port", str(self.ext_proc), "--grpc-health-port", str(self.health),
                 "--metrics-port", str(self.metrics))  # fmt: skip
        pool = ("--endpoint-selector", "app=vllm", "--endpoint-target-ports", str(site.engine),
                "--pool-namespace", site.namespace)  # fmt: skip
        command = (TIERWISE, "serve", "--host", "127.0.0.1", "--debug=false", "--secure-serving=false",
                   "--metrics-endpoint-auth=false", "--ha-enable-leader-election", "--drain-timeout=6s", *ports, *pool,
                   *words)  # fmt: skip
        mounted = ("unshare", "--mount", "sh", "-c", MOUNTED, "sh", ACCOUNT, str(site.account))
        environment = {**os.environ, "KUBERNETES_SERVICE_HOST": "127.0.0.1",
                       "KUBERNETES_SERVICE_PORT": str(site.plane.port), "POD_NAME": name}  # fmt: skip
        self.log = site.folder / f"{name}.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen((*mounted, *command), env=environment, stderr=log)
        self.reported = ""
        """The readiness that the API has; the test's own word where ``silent`` is set."""
        self.silent = False
        """Whether the kubelet reports nothing about this pod any more."""

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    def check(self, name: str = "readiness") -> str:
        """Return what the health service answers; empty while it does not."""
        with grpc.insecure_channel(f"127.0.0.1:{self.health}") as channel:
            try:
                answer = health_pb2_grpc.HealthStub(channel).Check(
                    health_pb2.HealthCheckRequest(service=name), timeout=5
                )
            except grpc.RpcError:
                return ""
            return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))

    @property
    def ready(self) -> bool:
        return self.runs and self.check() == "SERVING"

    @property
    def readyz(self) -> str:
        return page(self.metrics, "/readyz")

    def metric(self, name: str) -> float:
        """Return a number of the metrics page; -1 where it is not there."""
        lines = (line for line in page(self.metrics, "/metrics").splitlines() if line.startswith(f"{name} "))
        return next((float(line.rpartition(" ")[2]) for line in lines), -1.0)

    def picks(self) -> str:
        """Return the endpoint that a request is sent to; empty if it is refused."""
        messages = (request_headers(modes=None).SerializeToString(), request_body(BODY).SerializeToString())
        with grpc.insecure_channel(f"127.0.0.1:{self.ext_proc}") as channel:
            for raw in channel.stream_stream(PROCESS)(iter(messages), timeout=10):
                answer = ProcessingResponse.FromString(raw)
                for part in (answer.request_headers, answer.request_body):
                    for option in part.response.header_mutation.set_headers:
                        if option.header.key == "x-gateway-destination-endpoint":
                            return str(option.header.raw_value.decode())
        return ""

    def send(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        self.process.send_signal(number)


class Site:
    """A namespace with one engine and its pickers."""

    def __init__(self, plane: ControlPlane, folder: Path, namespace: str, engine: int) -> None:
        self.plane, self.folder, self.namespace, self.engine = plane, folder, namespace, engine
        self.account = folder / "account"
        self.pickers: list[Picker] = []
        self.lease_path = f"{leases_path(namespace)}/{lease_name(namespace, 'epp')}"

    def prepare(self, rules: list[dict[str, Any]]) -> None:
        """Make the namespace, the service account with its Role, and the engine's pod."""
        plane, namespace = self.plane, self.namespace
        plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        self.account.mkdir()
        (self.account / "token").write_text(plane.token_for(namespace, "picker"))
        shutil.copy(plane.authority, self.account / "ca.crt")
        plane.allow(namespace, "picker", rules)
        self._put("engine-0", "127.0.0.1", "True", {"app": "vllm"})

    def _put(self, name: str, ip: str, ready: str, labels: dict[str, str]) -> None:
        pod = written(name, ip=ip, ready=ready, labels=labels)
        pod["metadata"]["namespace"] = self.namespace
        self.plane.put_pod(pod)

    def start(self, name: str, *words: str) -> Picker:
        """Start a picker in a new pod, which is not ready yet."""
        self._put(name, "127.0.0.2", "False", {"app": "epp"})
        return self.start_again(name, *words)

    def start_again(self, name: str, *words: str) -> Picker:
        """Start a picker in a pod that is there."""
        picker = Picker(self, name, *words)
        self.pickers.append(picker)
        return picker

    def report(self) -> None:
        """Do what kubelets do: write whether each pod is ready, where that has changed."""
        for picker in self.pickers:
            if picker.silent:
                continue
            ready = "True" if picker.ready else "False"
            if ready != picker.reported:
                picker.reported = ready
                status = {"conditions": [{"type": "Ready", "status": ready}]}
                self.plane.set_status(self.namespace, picker.name, status)

    def lease(self) -> dict[str, Any]:
        """Return the Lease's ``spec``."""
        spec: dict[str, Any] = self.plane.request("GET", self.lease_path)["spec"]
        return spec

    def lease_is_there(self) -> bool:
        """Whether there is a Lease."""
        items = self.plane.request("GET", leases_path(self.namespace))["items"]
        return bool(items)

    @property
    def ready(self) -> list[Picker]:
        return [picker for picker in self.pickers if picker.ready]

    def led(self) -> Picker:
        """Return the leader once it alone is ready and all others stand by."""
        self.until(lambda: len(self.ready) == 1 and all(self._stands(picker) for picker in self.pickers))
        return self.ready[0]

    def _stands(self, picker: Picker) -> bool:
        return not picker.runs or picker.metric("tierwise_election_leading") == picker.ready

    def until(self, holds: Callable[[], object], within_s: float = PATIENCE_S, *, reports: bool = True) -> float:
        """Return after how many seconds ``holds`` was true. Raises: AssertionError with the pickers' logs."""
        began = time.monotonic()
        while not holds():
            assert time.monotonic() < began + within_s, self.story()
            if reports:
                self.report()
            time.sleep(0.02)
        return time.monotonic() - began

    def story(self) -> str:
        """Return what the pickers say, for a test that failed."""
        return "\n".join(
            f"{p.name}: {p.readyz if p.runs else 'ended'}\n{p.log.read_text()[-3000:]}" for p in self.pickers
        )


@contextmanager
def site(
    plane: ControlPlane, folder: Path, namespace: str, *, pickers: int = 3, rules: list[dict[str, Any]] | None = None
) -> Iterator[Site]:
    """Run the pickers of one pool, which all end cleanly if they still run."""
    with ExitStack() as stack:
        here = Site(plane, folder, namespace, free_port())
        stack.enter_context(running(TIERWISE, "sim", "--endpoints", "1", "--port", str(here.engine)))
        here.prepare(RULES if rules is None else rules)
        try:
            for number in range(pickers):
                here.start(f"epp-{number}")
            yield here
        finally:
            for picker in here.pickers:
                if picker.runs:
                    picker.send(signal.SIGTERM)
            for picker in here.pickers:
                picker.process.wait(30)
