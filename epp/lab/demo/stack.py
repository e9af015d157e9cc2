"""The processes of the demo: simulated endpoints, and a proxy with or without the picker. Loopback only."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from epp.lab.demo.arms import Arm
from epp.standalone import tether
from epp.standalone.binary import find_envoy
from epp.standalone.endpoints import write_endpoints
from epp.standalone.proxy import Proxy
from epp.standalone.settings import ProxySettings

READY_WITHIN_S = 30.0
ENDS_WITHIN_S = 10.0
ASKED_EVERY_S = 0.05
TAIL_LINES = 15
TIERWISE = "import sys; from epp.commandline.cli import main; sys.exit(main(sys.argv[1:]))"
LOOPBACK = "127.0.0.1"
SERVING = re.compile(r"^\s*http://(\S+:\d+)$", re.MULTILINE)


class DemoError(Exception):
    """A process did not start; the message has the reason and the end of its output."""


class Child:
    """A ``tierwise`` command in a process of its own. Owner: the context that started it."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, output: Path) -> None:
        self._name, self._process, self._output = name, process, output

    @property
    def text(self) -> str:
        """The output of the process so far."""
        return self._output.read_text(errors="replace")

    async def until(self, ready: Callable[[], Awaitable[bool]]) -> None:
        """Wait for ``ready``. Raises: DemoError when the process ends before, or it takes too long."""
        try:
            async with asyncio.timeout(READY_WITHIN_S):
                while not await ready():
                    if self._process.returncode is not None:
                        raise self._failed(f"ended with status {self._process.returncode}")
                    await asyncio.sleep(ASKED_EVERY_S)
        except TimeoutError:
            raise self._failed(f"was not ready within {READY_WITHIN_S:g} s") from None

    def _failed(self, how: str) -> DemoError:
        return DemoError(
            "\n".join([f"{self._name} {how}; the end of its output:", *self.text.splitlines()[-TAIL_LINES:]])
        )


@asynccontextmanager
async def child(folder: Path, command: str, *arguments: str) -> AsyncIterator[Child]:
    """Run ``tierwise COMMAND ARGUMENTS`` while the context lasts; then send SIGTERM, and kill it if it does not end.

    The process dies with ours, however ours ends.
    """
    output = folder / f"{command}.log"
    with output.open("wb") as sink:
        process = await asyncio.create_subprocess_exec(
            *[sys.executable, "-I", "-S", tether.__file__, str(os.getpid())],
            *[sys.executable, "-c", TIERWISE, command, *arguments],
            stdin=asyncio.subprocess.DEVNULL,
            stdout=sink,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the demo, which ends its children in order
        )
    try:
        yield Child(f"tierwise {command}", process, output)
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(ENDS_WITHIN_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


def free_ports(count: int) -> list[int]:
    """Return ports that are free at the moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server((LOOPBACK, 0))) for _ in range(count)]
        return [sock.getsockname()[1] for sock in sockets]


async def answers(url: str) -> bool:
    """Return whether ``GET url`` answers 200."""
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


@asynccontextmanager
async def simulated(folder: Path, count: int, preset: str) -> AsyncIterator[list[str]]:
    """Start simulated endpoints and yield their addresses."""
    async with child(folder, "sim", f"--endpoints={count}", "--port=0", f"--preset={preset}") as sim:

        async def listening() -> bool:
            return len(SERVING.findall(sim.text)) == count

        await sim.until(listening)
        yield SERVING.findall(sim.text)


@asynccontextmanager
async def router(folder: Path, arm: Arm, endpoints: Sequence[str], envoy: Path | None) -> AsyncIterator[str]:
    """Run a proxy that chooses among ``endpoints`` as ``arm`` does; yield its base URL once it answers."""
    if arm.config is None:
        async with round_robin(folder, endpoints, envoy) as url:
            yield url
        return
    config = folder / "config.yaml"
    config.write_text(arm.config)
    port, admin, metrics = free_ports(3)
    flags = [f"--port={port}", f"--admin-port={admin}", f"--metrics-port={metrics}", f"--host={LOOPBACK}", "--v=1"]
    flags.append("--shutdown-delay=0s")  # all answers have come, and no load balancer has to notice
    if envoy is not None:
        flags.append(f"--envoy={envoy}")
    flags += [*arm.flags, *(f"--endpoint={endpoint}" for endpoint in endpoints)]
    url = f"http://{LOOPBACK}:{port}"
    async with child(folder, "standalone", f"--config-file={config}", *flags) as standalone:

        async def ready() -> bool:
            return await answers(f"{url}/v1/models")

        await standalone.until(ready)
        yield url


@asynccontextmanager
async def round_robin(folder: Path, endpoints: Sequence[str], envoy: Path | None) -> AsyncIterator[str]:
    """Run the standalone proxy without a picker: it fails open, to its own round robin."""
    port, admin, nobody = free_ports(3)
    file = folder / "endpoints" / "endpoints.json"
    file.parent.mkdir()
    write_endpoints(file, endpoints)
    settings = ProxySettings(port=port, picker_port=nobody, endpoints_file=file, admin_port=admin, host=LOOPBACK)
    proxy = Proxy(find_envoy(envoy), settings, folder)
    await proxy.start()
    try:
        yield f"http://{LOOPBACK}:{port}"
    finally:
        await proxy.stop(0.0)
