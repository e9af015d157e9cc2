"""One container of a pod over its restarts."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from tests.cluster.node.api import Object
from tests.cluster.node.fields import NotYet
from tests.cluster.node.images import Unknown
from tests.cluster.node.probes import Probed, handled
from tests.cluster.node.sandbox import Container

LONGEST_PAUSE_S = 10.0
RETRY_S = 0.3

Start = Callable[[Object, int], Awaitable[Container]]
"""Starts a container, whose earlier starts are counted. Raises: NotYet, Unknown."""


def now() -> str:
    """Return the time as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class ContainerRun:
    """A container of a pod's spec: what runs now, and what its status is."""

    def __init__(self, spec: Object, address: str, start: Start, changed: asyncio.Event) -> None:
        self.spec, self._address, self._start, self._changed = spec, address, start, changed
        self.name: str = spec["name"]
        self.restarts = 0
        self.state: Object = {"waiting": {"reason": "PodInitializing"}}
        self._last: Object = {}
        self._probed: Probed | None = None
        self.container: Container | None = None
        self._ending, self.has_started = asyncio.Event(), asyncio.Event()
        self.exit_code: int | None = None
        """Of a container that will not start again."""

    @property
    def ready(self) -> bool:
        return self._probed is not None and self._probed.ready

    @property
    def started(self) -> bool:
        return self._probed is not None and self._probed.started

    async def run(self, restart: str) -> int:
        """Start the container, and again as the policy ``restart`` tells; return the last exit status."""
        while True:
            try:
                code = await self._once()
            except (NotYet, Unknown) as reason:
                self._wait("CreateContainerConfigError" if isinstance(reason, NotYet) else "ErrImagePull", str(reason))
                with suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_S):
                        await self._ending.wait()
                        return 0
                continue
            if self._ending.is_set() or restart == "Never" or (restart == "OnFailure" and code == 0):
                self.exit_code = code
                self._changed.set()
                return code
            pause = min(2.0**self.restarts * 0.5, LONGEST_PAUSE_S)
            self._last, self.restarts = self.state, self.restarts + 1
            self._wait("CrashLoopBackOff", f"back-off {pause} s restarting failed container")
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._ending.wait()
                    self.exit_code = code
                    return code

    async def end(self, grace_s: float) -> None:
        """End the container as Kubernetes does: hook, SIGTERM, and SIGKILL when ``grace_s`` is over."""
        self._ending.set()
        container = self.container
        if container is None:
            return
        ended = asyncio.ensure_future(container.wait())
        try:
            async with asyncio.timeout(grace_s):
                if hook := self.spec.get("lifecycle", {}).get("preStop"):
                    with suppress(OSError):
                        await handled(hook, self.spec, self._address, container)
                container.signal(signal.SIGTERM)
                await asyncio.shield(ended)
        except TimeoutError:
            container.signal(signal.SIGKILL)
            await ended

    def status(self) -> Object:
        """Return the container's status, as the API has it."""
        status: dict[str, Any] = {
            "name": self.name, "image": self.spec["image"], "imageID": self.spec["image"],
            "containerID": f"process://{self.name}-{self.restarts}", "restartCount": self.restarts,
            "ready": self.ready, "started": self.started, "state": self.state,
        }  # fmt: skip
        if self._last:
            status["lastState"] = self._last
        return status

    async def _once(self) -> int:
        container = await self._start(self.spec, self.restarts)
        self.container = container
        self._probed = Probed(self.spec, self._address, container, self._changed, self.has_started)
        began = now()
        self.state = {"running": {"startedAt": began}}
        self._changed.set()
        if self._ending.is_set():  # its end was asked for while it was being started
            container.signal(signal.SIGKILL)
        probing = asyncio.create_task(self._probed.run())
        failing = asyncio.create_task(self._end_when_it_failed(self._probed))
        try:
            code = await container.wait()
        finally:
            for task in (probing, failing):
                task.cancel()
            await asyncio.gather(probing, failing, return_exceptions=True)
        self._probed, self.container = None, None
        reason = "Completed" if code == 0 else "Error"
        self.state = {
            "terminated": {"exitCode": code, "reason": reason, "startedAt": began, "finishedAt": now()},
        }
        self._changed.set()
        return code

    async def _end_when_it_failed(self, probed: Probed) -> None:
        await probed.failed.wait()
        container = self.container
        if container is not None:
            container.signal(signal.SIGTERM)
            await asyncio.sleep(self.spec.get("terminationGracePeriodSeconds", 30))
            container.signal(signal.SIGKILL)

    def _wait(self, reason: str, message: str) -> None:
        state = {"waiting": {"reason": reason, "message": message}}
        if state != self.state:
            self.state = state
            self._changed.set()
