"""A thousand pods that are objects only: all their addresses are answered by one small server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.cluster import ROOT, Cluster
from tests.cluster.control_plane import ADMIN
from tests.cluster.node.api import MERGE, Api
from tests.cluster.node.network import TIED
from tests.cluster.workloads import ENGINES

RANGE = "10.246"
NODE = "elsewhere"
AT_ONCE = 8
Names = dict[str, str]
"""The addresses of pods, by name."""


def named(generation: str, number: int, offset: int) -> Names:
    """Return ``number`` pods with addresses of their own."""
    numbers = range(offset, offset + number)
    return {f"{generation}-{n}": f"{RANGE}.{n // 250}.{n % 250 + 1}" for n in numbers}


@contextmanager
def one_engine_for_all(folder: Path) -> Iterator[None]:
    """Answer at every address of ``RANGE``, port 8000."""
    subprocess.run(["ip", "route", "add", "local", f"{RANGE}.0.0/16", "dev", "lo"], check=True)
    with (folder / "engine.log").open("ab") as log:
        command = [*TIED, sys.executable, "-m", "tests.cluster.small_engine"]
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)
    try:
        yield
    finally:
        process.kill()
        process.wait()


class Pods:
    """Creates and deletes such pods in a namespace."""

    def __init__(self, here: Cluster, namespace: str) -> None:
        self._api = Api(here.plane.url, str(here.plane.authority), ADMIN)
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        # Without its node the garbage collector of pods would take them away.
        here.plane.request("POST", "/api/v1/nodes", {"metadata": {"name": NODE}})

    def replace(self, old: Names, new: Names) -> None:
        """Make new pods ready, one for each old one, which is then deleted."""
        asyncio.run(self._replace(old, new))

    async def _replace(self, old: Names, new: Names) -> None:
        places = asyncio.Semaphore(AT_ONCE)
        async with self._api.session() as session:

            async def send(method: str, path: str, body: object, content: str = "application/json") -> None:
                headers = {"Content-Type": content}
                async with session.request(method, path, data=json.dumps(body), headers=headers) as response:
                    assert response.status < 300, await response.text()

            async def one(name: str, address: str, gone: str | None) -> None:
                async with places:
                    container = {"name": "engine", "image": "none", "ports": [{"containerPort": 8000}]}
                    spec = {"nodeName": NODE, "containers": [container], "terminationGracePeriodSeconds": 0}
                    await send("POST", self._path, {"metadata": {"name": name, "labels": ENGINES}, "spec": spec})
                    status = {
                        "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
                        "conditions": [{"type": "Ready", "status": "True"}],
                    }  # fmt: skip
                    await send("PATCH", f"{self._path}/{name}/status", {"status": status}, MERGE)
                    if gone is not None:
                        await send("DELETE", f"{self._path}/{gone}", {"gracePeriodSeconds": 0})

            leaving = [*old, *[None] * (len(new) - len(old))]
            await asyncio.gather(*(one(*item, gone) for item, gone in zip(new.items(), leaving, strict=True)))
