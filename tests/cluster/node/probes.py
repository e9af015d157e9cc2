"""Probes: one question to a container, and the loops that ask it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import aiohttp
import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.cluster.node.api import Object
from tests.cluster.node.sandbox import Container


async def asked(probe: Object, spec: Object, address: str, container: Container) -> bool:
    """Return whether the container answers the probe within its time."""
    try:
        async with asyncio.timeout(probe.get("timeoutSeconds", 1)):
            return await handled(probe, spec, address, container)
    except (TimeoutError, OSError, aiohttp.ClientError, grpc.RpcError):
        return False


async def handled(handler: Object, spec: Object, address: str, container: Container) -> bool:
    """Run a probe's or a hook's handler once."""
    if "httpGet" in handler:
        return await _http(handler["httpGet"], spec, address)
    if "tcpSocket" in handler:
        _, writer = await asyncio.open_connection(address, _port(handler["tcpSocket"]["port"], spec))
        writer.close()
        return True
    if "grpc" in handler:
        return await _grpc(handler["grpc"], address)
    if "sleep" in handler:
        await asyncio.sleep(handler["sleep"]["seconds"])
        return True
    words = container.inside(handler["exec"]["command"])
    ran = await asyncio.create_subprocess_exec(
        *words, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        return await ran.wait() == 0
    finally:
        if ran.returncode is None:
            ran.kill()
            await ran.wait()


async def _http(get: Object, spec: Object, address: str) -> bool:
    scheme, host = get.get("scheme", "HTTP").lower(), get.get("host", address)
    headers = {one["name"]: one["value"] for one in get.get("httpHeaders", ())}
    url = f"{scheme}://{host}:{_port(get['port'], spec)}{get.get('path', '/')}"
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session,
        session.get(url, headers=headers, allow_redirects=False) as response,
    ):
        return 200 <= response.status < 400


async def _grpc(probe: Object, address: str) -> bool:
    async with grpc.aio.insecure_channel(f"{address}:{probe['port']}") as channel:
        request = health_pb2.HealthCheckRequest(service=probe.get("service") or "")
        answer = await health_pb2_grpc.HealthStub(channel).Check(request)
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def _port(port: int | str, spec: Object) -> int:
    if isinstance(port, int):
        return port
    if port.isdigit():
        return int(port)
    named = [one["containerPort"] for one in spec.get("ports", ()) if one.get("name") == port]
    return int(named[0]) if named else 0


class Probed:
    """What a container's probes found. ``failed`` is set when it must be ended."""

    def __init__(
        self, spec: Object, address: str, container: Container, changed: asyncio.Event, has_started: asyncio.Event
    ) -> None:
        self._spec, self._address, self._container = spec, address, container
        self._changed, self._has_started = changed, has_started
        self.started = "startupProbe" not in spec
        self.ready = self.started and "readinessProbe" not in spec
        self.failed = asyncio.Event()

    async def run(self) -> None:
        """Ask the probes until this is cancelled."""
        if "startupProbe" in self._spec:
            await self._until_started(self._spec["startupProbe"])
        self.started = True
        self._has_started.set()
        self.ready = "readinessProbe" not in self._spec
        self._changed.set()
        async with asyncio.TaskGroup() as group:
            if "readinessProbe" in self._spec:
                group.create_task(self._readiness(self._spec["readinessProbe"]))
            if "livenessProbe" in self._spec:
                group.create_task(self._liveness(self._spec["livenessProbe"]))

    async def _until_started(self, probe: Object) -> None:
        await asyncio.sleep(probe.get("initialDelaySeconds", 0))
        failures = 0
        while not await self._ask(probe):
            failures += 1
            if failures >= probe.get("failureThreshold", 3):
                self.failed.set()
            # A container that is not up yet is asked more often than its period, to be quick.
            await asyncio.sleep(min(probe.get("periodSeconds", 10), 0.5) if failures < 3 else probe["periodSeconds"])

    async def _readiness(self, probe: Object) -> None:
        successes = failures = 0
        quick = min(probe.get("periodSeconds", 10), 0.5)
        while True:
            if await self._ask(probe):
                successes, failures = successes + 1, 0
            else:
                successes, failures = 0, failures + 1
            ready = self.ready
            if successes >= probe.get("successThreshold", 1):
                ready = True
            elif failures >= probe.get("failureThreshold", 3):
                ready = False
            if ready != self.ready:
                self.ready = ready
                self._changed.set()
            await asyncio.sleep(probe.get("periodSeconds", 10) if self.ready else quick)

    async def _liveness(self, probe: Object) -> None:
        await asyncio.sleep(probe.get("initialDelaySeconds", 0))
        failures = 0
        while failures < probe.get("failureThreshold", 3):
            await asyncio.sleep(probe.get("periodSeconds", 10))
            failures = 0 if await self._ask(probe) else failures + 1
        self.failed.set()

    async def _ask(self, probe: Object) -> bool:
        with suppress(KeyError):
            return await asked(probe, self._spec, self._address, self._container)
        return False
