"""One pod on the node, from its binding to its end."""

from __future__ import annotations

import asyncio
import subprocess
from contextlib import suppress
from pathlib import Path

import aiohttp

from tests.cluster.node import images, network, sandbox
from tests.cluster.node.api import MERGE, Api, Copy, Object, Refused
from tests.cluster.node.containers import ContainerRun, now
from tests.cluster.node.fields import NotYet, environment, expand
from tests.cluster.node.volumes import Volumes

RENEW_S = 1.0
AGAIN_S = 0.3
DOMAIN = "cluster.local"


class PodRun:
    """A pod's processes. Owned by one task, ``run``, which ends when the pod has been ended and its object is gone."""

    def __init__(self, api: Api, pod: Object, number: int, folder: Path, maps: Copy, secrets: Copy) -> None:
        self._api, self.pod, self._number, self.folder = api, pod, number, folder
        self._maps, self._secrets = maps, secrets
        self._volumes = Volumes(api, folder / "volumes", maps, secrets)
        self._changed, self._deleted = asyncio.Event(), asyncio.Event()
        self._pause: subprocess.Popen[bytes] | None = None
        self._address = ""
        self._since: dict[str, tuple[str, str]] = {}
        self._message = ""
        self._initialized = False
        self.inits: list[ContainerRun] = []
        self.containers: list[ContainerRun] = []
        self._tasks: list[asyncio.Task[int]] = []

    @property
    def pause(self) -> int:
        """The process whose network namespace is the pod's. Raises: ConnectionError before there is one."""
        if self._pause is None:
            raise ConnectionError("the pod has not started")
        return self._pause.pid

    def container(self, name: str) -> sandbox.Container | None:
        """Return a container that runs now."""
        run = self._named(name)
        return run.container if run is not None else None

    def update(self, pod: Object) -> None:
        """Take the newest object; one with a deletion timestamp ends the pod."""
        self.pod = pod
        if pod["metadata"].get("deletionTimestamp"):
            self._deleted.set()
        self._changed.set()

    def forget_tokens(self) -> None:
        """Have the tokens in the pod's volumes replaced within RENEW_S."""
        self._volumes.forget_tokens()

    def log(self, name: str, start: int | None = None) -> Path | None:
        """Return the log of a container, of its newest start or an older one; None for one that never started."""
        run = self._named(name)
        if run is None:
            return None
        found = self.folder / "logs" / f"{name}-{run.restarts if start is None else run.restarts + start}.log"
        return found if found.is_file() else None

    def ended(self, name: str) -> bool:
        """Return whether a container has ended for good."""
        run = self._named(name)
        return run is None or run.exit_code is not None

    async def run(self) -> None:
        """Run the pod until it is deleted and has ended."""
        reporting = asyncio.create_task(self._report_changes())
        living = asyncio.create_task(self._live())
        deleted = asyncio.create_task(self._deleted.wait())
        try:
            await asyncio.wait((living, deleted), return_when=asyncio.FIRST_COMPLETED)
            if living.done() and living.exception() is not None:
                self._message = f"the node failed: {living.exception()!r}"
                self._changed.set()
            await deleted
            await self._end()
            await self._forget()
        finally:
            for task in (living, deleted, reporting, *self._tasks):
                task.cancel()
            await asyncio.gather(living, deleted, reporting, *self._tasks, return_exceptions=True)
            if self._pause is not None:
                self._pause.kill()
                self._pause.wait()

    async def _live(self) -> None:
        self._pause = network.holder()
        self._address = network.connect(self._pause.pid, self._number)
        self._write_names()
        spec = self.pod["spec"]
        policy = spec.get("restartPolicy", "Always")
        self.inits = [self._container(one) for one in spec.get("initContainers", ())]
        self.containers = [self._container(one) for one in spec["containers"]]
        await self._mount()
        renewing = asyncio.create_task(self._renew())
        try:
            for init in self.inits:
                if not await self._initialize(init, policy):
                    return
            self._initialized = True
            mains = [asyncio.create_task(one.run(policy)) for one in self.containers]
            self._tasks += mains
            self._changed.set()
            await asyncio.gather(*mains)
        finally:
            renewing.cancel()
            self._changed.set()

    async def _initialize(self, init: ContainerRun, policy: str) -> bool:
        """Run an init container to its end, or until it has started where it goes on beside the others."""
        if init.spec.get("restartPolicy") == "Always":
            self._tasks.append(asyncio.create_task(init.run("Always")))
            await init.has_started.wait()
            return True
        task = asyncio.create_task(init.run("Never" if policy == "Never" else "OnFailure"))
        self._tasks.append(task)
        return await task == 0

    async def _mount(self) -> None:
        while True:
            try:
                await self._volumes.renew(self.pod, self._address)
            except (NotYet, Refused, aiohttp.ClientError, OSError) as reason:
                self._message = f"the volumes are not there yet: {reason}"
                self._changed.set()
                await asyncio.sleep(AGAIN_S)
            else:
                self._message = ""
                return

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            with suppress(NotYet, Refused, aiohttp.ClientError, OSError):
                await self._volumes.renew(self.pod, self._address)

    def _named(self, name: str) -> ContainerRun | None:
        return next((one for one in (*self.inits, *self.containers) if one.name == name), None)

    def _container(self, spec: Object) -> ContainerRun:
        return ContainerRun(spec, self._address, self._start, self._changed)

    async def _start(self, spec: Object, attempt: int) -> sandbox.Container:
        image = images.find(spec["image"])
        values = dict(image.environment) | environment(self.pod, spec, self._address, self._maps, self._secrets)
        words = [expand(word, values) for word in images.command(image, spec.get("command", []), spec.get("args", []))]
        context = self.pod["spec"].get("securityContext", {}) | spec.get("securityContext", {})
        user = context.get("runAsUser", image.user)
        if context.get("runAsNonRoot") and not user:
            raise NotYet("container has runAsNonRoot and image will run as root")
        launch = sandbox.Launch(
            words, values, self._mounts(spec), self.folder / "containers" / f"{spec['name']}-{attempt}",
            self.pod["spec"].get("hostname") or self.pod["metadata"]["name"], user,
            bool(context.get("readOnlyRootFilesystem")), spec.get("workingDir"),
            self.folder / "logs" / f"{spec['name']}-{attempt}.log",
        )  # fmt: skip
        launch.log.parent.mkdir(exist_ok=True)
        assert self._pause is not None
        return await sandbox.start(launch, self._pause.pid)

    def _mounts(self, spec: Object) -> list[sandbox.Mount]:
        mounts = [sandbox.Mount(self.folder / name, f"/etc/{name}", True) for name in ("resolv.conf", "hosts")]
        for one in spec.get("volumeMounts", ()):
            source = self._volumes.path(one["name"])
            if "subPath" in one:
                source = source / one["subPath"]
                if not source.exists():
                    source.mkdir(parents=True)
                source = source.resolve()
            mounts.append(sandbox.Mount(source, one["mountPath"], bool(one.get("readOnly"))))
        return mounts

    def _write_names(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        namespace, name = self.pod["metadata"]["namespace"], self.pod["metadata"]["name"]
        search = f"{namespace}.svc.{DOMAIN} svc.{DOMAIN} {DOMAIN}"
        (self.folder / "resolv.conf").write_text(
            f"nameserver {network.DNS_ADDRESS}\nsearch {search}\noptions ndots:5\n"
        )
        (self.folder / "hosts").write_text(f"127.0.0.1 localhost\n{self._address} {name}\n")

    async def _end(self) -> None:
        grace = self.pod["metadata"].get("deletionGracePeriodSeconds", 30)
        await asyncio.gather(*(one.end(grace) for one in (*self.containers, *self.inits)))
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)

    async def _forget(self) -> None:
        """Delete the pod's object, whose processes are gone."""
        metadata = self.pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
        while True:
            try:
                await self._report()
                await self._api.request("DELETE", path, body)
            except Refused as refused:
                if refused.status in (404, 409):
                    return
            except (aiohttp.ClientError, OSError):
                pass
            else:
                return
            await asyncio.sleep(AGAIN_S)

    async def _report_changes(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._report()
            except Refused as refused:
                if refused.status != 404:
                    self._changed.set()
                    await asyncio.sleep(AGAIN_S)
            except (aiohttp.ClientError, OSError, TimeoutError):
                self._changed.set()
                await asyncio.sleep(AGAIN_S)

    async def _report(self) -> None:
        metadata = self.pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
        await self._api.request("PATCH", path, {"metadata": {"uid": metadata["uid"]}, "status": self._status()}, MERGE)

    def _status(self) -> Object:
        gates = [one["conditionType"] for one in self.pod["spec"].get("readinessGates", ())]
        written = {one["type"]: one["status"] for one in self.pod.get("status", {}).get("conditions", ())}
        done = [one.exit_code for one in self.containers]
        all_ready = self._initialized and all(one.ready for one in self.containers)
        ready = all_ready and all(written.get(gate) == "True" for gate in gates)
        failed_init = any(one.exit_code for one in self.inits)
        if failed_init or (done and None not in done):
            phase = "Failed" if failed_init or any(done) else "Succeeded"
        else:
            phase = "Running" if self._initialized else "Pending"
        conditions = {"PodScheduled": True, "Initialized": self._initialized, "ContainersReady": all_ready,
                      "Ready": ready}  # fmt: skip
        status: Object = {
            "phase": phase,
            "message": self._message,
            "hostIP": network.GATEWAY,
            "conditions": [self._condition(name, "True" if value else "False") for name, value in conditions.items()],
            "containerStatuses": [one.status() for one in self.containers],
            "initContainerStatuses": [one.status() for one in self.inits],
            "startTime": self._since["PodScheduled"][1],
        }
        if self._address:
            status |= {"podIP": self._address, "podIPs": [{"ip": self._address}]}
        return status

    def _condition(self, name: str, value: str) -> Object:
        if self._since.get(name, ("", ""))[0] != value:
            self._since[name] = value, now()
        return {"type": name, "status": value, "lastTransitionTime": self._since[name][1]}
