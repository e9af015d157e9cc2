"""A kubelet whose pods are processes.

    python -m tests.cluster.node.kubelet URL AUTHORITY TOKEN FOLDER [IMAGE=IMAGE ...]

It is the only node, and its own scheduler: each pod without a node is bound to it. It writes ``ready`` to its standard
output once pods can start.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import sys
from contextlib import suppress
from pathlib import Path

import aiohttp

from tests.cluster.node.answers import Answers
from tests.cluster.node.api import Api, Copy, Object, Refused
from tests.cluster.node.images import MIRRORS
from tests.cluster.node.network import GATEWAY
from tests.cluster.node.pods import PodRun
from tests.cluster.node.services import Forwarder, Names

NODE = "worker"
KUBELET_PORT = 10250


class Kubelet:
    """The node. Everything here belongs to its event loop."""

    def __init__(self, api: Api, folder: Path) -> None:
        self._api, self._folder = api, folder
        self._numbers = itertools.count(1)
        self.runs: dict[str, PodRun] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._services_changed = asyncio.Event()
        self._pods = Copy(api, "/api/v1/pods", self._pod_changed)
        self._maps = Copy(api, "/api/v1/configmaps", lambda *_: None)
        self._secrets = Copy(api, "/api/v1/secrets", lambda *_: None)
        self._services = Copy(api, "/api/v1/services", lambda *_: self._services_changed.set())
        self._slices = Copy(api, "/apis/discovery.k8s.io/v1/endpointslices", lambda *_: None)

    async def run(self) -> None:
        """Be a node until cancelled."""
        await self._register()
        answers = Answers(self.runs, self._folder)
        await answers.listen(GATEWAY, KUBELET_PORT)
        forwarder = Forwarder(self._services, self._slices)
        await Names(self._services, self._slices).listen()
        copies = (self._maps, self._secrets, self._services, self._slices)
        following = [asyncio.create_task(one.follow()) for one in copies]
        try:
            await asyncio.gather(*(one.filled.wait() for one in copies))
            following += [asyncio.create_task(self._pods.follow()),
                          asyncio.create_task(forwarder.follow(self._services_changed))]  # fmt: skip
            await self._pods.filled.wait()
            print("ready", flush=True)
            await asyncio.gather(*following)
        finally:
            for task in (*following, *self._tasks):
                task.cancel()
            await asyncio.gather(*following, *self._tasks, return_exceptions=True)
            forwarder.close()
            answers.close()

    def renew_tokens(self) -> None:
        """Have every pod's tokens replaced."""
        for run in self.runs.values():
            run.forget_tokens()

    def _pod_changed(self, event: str, pod: Object) -> None:
        node, uid = pod["spec"].get("nodeName"), pod["metadata"]["uid"]
        if node is None:
            if event != "DELETED":
                self._start(self._bind(pod))
            return
        if node != NODE:
            return
        run = self.runs.get(uid)
        if run is not None:
            if event == "DELETED":  # by force
                pod["metadata"].setdefault("deletionTimestamp", "now")
                pod["metadata"]["deletionGracePeriodSeconds"] = 0
            run.update(pod)
        elif event != "DELETED":
            folder = self._folder / "pods" / uid
            run = PodRun(self._api, pod, next(self._numbers), folder, self._maps, self._secrets)
            self.runs[uid] = run
            run.update(pod)
            self._start(self._run(uid, run))

    async def _run(self, uid: str, run: PodRun) -> None:
        try:
            await run.run()
        finally:
            self.runs.pop(uid, None)

    async def _bind(self, pod: Object) -> None:
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/binding"
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": metadata["name"]}, "target": target}
        with suppress(Refused, aiohttp.ClientError, OSError):  # bound already, or gone; else the next list has it
            await self._api.request("POST", path, body)

    async def _register(self) -> None:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": {
            "kubernetes.io/hostname": NODE, "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "here",
        }}}  # fmt: skip
        with suppress(Refused):
            await self._api.request("POST", "/api/v1/nodes", node)
        capacity = {"cpu": "64", "memory": "1Ti", "pods": "1000", "nvidia.com/gpu": "64"}
        status = {
            "addresses": [{"type": "InternalIP", "address": GATEWAY}, {"type": "Hostname", "address": NODE}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": KUBELET_PORT}},
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}],
        }
        path = f"/api/v1/nodes/{NODE}/status"
        await self._api.request("PATCH", path, {"status": status}, "application/strategic-merge-patch+json")

    def _start(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def main(url: str, authority: str, token: str, folder: str, *mirrors: str) -> None:
    """Run the node until SIGTERM; SIGHUP replaces the tokens. Of ``mirrors``, each has an image stand for another."""
    MIRRORS.update(mirror.split("=") for mirror in mirrors)
    task = asyncio.current_task()
    assert task is not None
    kubelet = Kubelet(Api(url, authority, token), Path(folder))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, kubelet.renew_tokens)
    with suppress(asyncio.CancelledError):
        await kubelet.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
