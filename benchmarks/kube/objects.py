"""Pods of a given size at a real API server, made and changed as a fleet's controllers would."""

from __future__ import annotations

import asyncio
import itertools
import json
import ssl
import time
from collections.abc import Sequence
from typing import Any

import aiohttp

from tests.cluster.control_plane import ADMIN, ControlPlane
from tests.epp.discovery.pods import written

CHANGE = "change"
"""The label whose value numbers a pod's changes."""
PART, FEW = "part", "few"
"""A label that tells a tenth of the pods from the others."""
AT_ONCE = 16


class Writer:
    """Writes pods to one API server. An async context manager."""

    def __init__(self, plane: ControlPlane) -> None:
        self._pods = f"{plane.url}/api/v1/namespaces/default/pods"
        self._tls = ssl.create_default_context(cafile=str(plane.authority))
        self._numbers = itertools.count()

    async def __aenter__(self) -> Writer:
        """Open a session with the API server."""
        headers = {"Authorization": f"Bearer {ADMIN}"}
        connector = aiohttp.TCPConnector(limit=AT_ONCE, ssl=self._tls)
        self._session = aiohttp.ClientSession(connector=connector, headers=headers)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the session and its connections."""
        await self._session.close()

    async def make(self, count: int, size: int) -> list[str]:
        """Create ``count`` ready pods of about ``size`` bytes each, and return their addresses."""
        free = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> str:
            address = f"10.1.{number >> 8}.{number & 255}"
            labels = {"app": "vllm", PART: FEW if number < count // 10 else "rest"}
            pod = written(f"vllm-{number}", ip=address, labels=labels)
            status = pod.pop("status")
            for field in ("uid", "creationTimestamp", "deletionTimestamp"):
                del pod["metadata"][field]
            for container in (*pod["spec"]["containers"], *pod["spec"].pop("initContainers", ())):
                container["image"] = "vllm"
            padding = "x" * max(0, size - len(json.dumps(pod)) - len(json.dumps(status)) - 1500)
            pod["metadata"]["annotations"] = {"padding": padding}
            async with free:
                await self._request("POST", "", pod)
                await self._request("PATCH", f"/vllm-{number}/status", {"status": status})
            return f"{address}:8000"

        return list(await asyncio.gather(*(one(number) for number in range(count))))

    async def change(self, pod: int) -> tuple[str, float]:
        """Change one pod's label. Returns the change's number, and when it was sent, by CLOCK_MONOTONIC."""
        number, sent = str(next(self._numbers)), time.clock_gettime(time.CLOCK_MONOTONIC)
        await self._request("PATCH", f"/vllm-{pod}", {"metadata": {"labels": {CHANGE: number}}})
        return number, sent

    async def changes(self, pods: Sequence[int], per_second: float, seconds: float) -> dict[str, float]:
        """Change one pod after the other at a rate. Returns when each change was sent, by its number."""
        loop, sent = asyncio.get_running_loop(), dict[str, float]()
        began, tasks = loop.time(), list[asyncio.Task[tuple[str, float]]]()
        for turn in range(int(per_second * seconds)):
            await asyncio.sleep(max(0.0, began + turn / per_second - loop.time()))
            tasks.append(asyncio.create_task(self.change(pods[turn % len(pods)])))
        for task in tasks:
            number, at = await task
            sent[number] = at
        return sent

    async def _request(self, method: str, path: str, body: Any) -> None:
        kind = "application/json" if method == "POST" else "application/strategic-merge-patch+json"
        data, headers = json.dumps(body), {"Content-Type": kind}
        async with self._session.request(method, self._pods + path, data=data, headers=headers) as response:
            if response.status >= 300:
                raise RuntimeError(f"{method} {path}: {response.status} {await response.text()}")
