"""The site of the chaos tests: a real Envoy, a picker in a process of its own, engines that fail on request.

After each scenario ``Site.settled`` checks that everything is as before: no request in flight, no stream, no open file
that was not open before, no memory beyond a bound.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from epp.ports.claim import claim
from epp.server.settings import Transport
from epp.standalone.binary import find_envoy
from epp.standalone.endpoints import write_endpoints
from epp.standalone.proxy import Proxy
from epp.standalone.settings import ProxySettings, RequestMode, ResponseMode
from tests.e2e.site.fragile import FragileEngine
from tests.e2e.site.storm import PATIENCE_S, Storm, until

LOOPBACK = "127.0.0.1"
ROOT = Path(__file__).parents[3]
ENVOY_WORKERS = os.cpu_count() or 1


class Mode(Enum):
    """How the proxy and the picker are configured together."""

    STANDALONE = "standalone"
    DUPLEX = "full duplex"


@dataclass
class Picker:
    """The picker's process, always on the same ports."""

    options: dict[str, Any]
    folder: Path
    process: asyncio.subprocess.Process | None = None
    starts: int = 0

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def log(self) -> str:
        """Return the output of the process since its last start."""
        return (self.folder / f"picker-{self.starts}.log").read_text()

    async def start(self) -> None:
        """Start the process, and return once it is ready."""
        self.starts += 1
        with (self.folder / f"picker-{self.starts}.log").open("wb") as log:
            self.process = await asyncio.create_subprocess_exec(
                *[sys.executable, "-m", "tests.e2e.site.picker_process", json.dumps(self.options)],
                stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT,
            )  # fmt: skip
        while not await self.ready():
            assert self.process.returncode is None, self.log
            await asyncio.sleep(0.02)

    async def ready(self) -> bool:
        try:
            return (await self.get("/readyz"))[0] == 200
        except OSError:
            return False

    async def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Kill the process, and return when it is gone."""
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(number)
            await self.process.wait()

    def freeze(self) -> None:
        """Stop the process, as a suspended machine would."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue the stopped process."""
        os.kill(self.pid, signal.SIGCONT)

    async def get(self, path: str) -> tuple[int, str]:
        """Return status and text of a page of its metrics port. Raises: OSError."""
        return await get(self.options["metrics_port"], path)

    async def in_flight(self) -> int:
        """Return the number of requests that the picker counts."""
        return int(await self.metric("llm_d_epp_request_running"))

    async def fresh(self) -> dict[str, bool]:
        """Return by endpoint whether its metrics are fresh."""
        page = (await self.get("/metrics"))[1]
        found = re.findall(r'^tierwise_endpoint_fresh{endpoint="(.*)"} (\S+)$', page, re.MULTILINE)
        return {address: float(value) == 1 for address, value in found}

    async def metric(self, name: str) -> float:
        """Return the sum of a metric over its labels."""
        values = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", (await self.get("/metrics"))[1], re.MULTILINE)
        return sum(map(float, values))

    def files(self) -> int:
        """Return the number of files and sockets that it has open."""
        return len(self.links())

    def links(self) -> list[Path]:
        """Return a link for each open file."""
        return list(Path(f"/proc/{self.pid}/fd").iterdir())

    def resident_bytes(self) -> int:
        """Return the resident memory of the process."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024


@dataclass
class Site:
    """The proxy, the picker and the engines together. ``storm`` is their load."""

    mode: Mode
    proxy: Proxy
    picker: Picker
    engines: list[FragileEngine]
    storm: Storm
    base_files: int = 0
    folder: Path = field(default_factory=Path)

    async def warm(self, answers: int = 40) -> None:
        """Serve a few requests, and record the files that are open then."""
        with self.storm.raging(16):
            await self.storm.more(answers)
        await self.storm.ended()
        await self.settled()
        self.base_files = self.picker.files()

    def list_endpoints(self, engines: Sequence[FragileEngine]) -> None:
        """Write the endpoints for the proxy, as the command's own writer does."""
        write_endpoints(self.proxy.settings.endpoints_file, [engine.address for engine in engines])

    async def settled(self) -> None:
        """Return once no request has left anything, in the picker, the proxy or the engines.

        The proxy keeps one stream of its access log per worker thread, and the picker a connection for each.
        """
        logs = ENVOY_WORKERS if self.mode is Mode.STANDALONE else 0
        await eventually(self.picker.in_flight, lambda n: n == 0, "the ledger is empty")
        await eventually(lambda: self.picker.metric("tierwise_wire_open_streams"), lambda n: n <= logs, "streams ended")
        for stat, most in (
            ("http.clients.downstream_rq_active", 0),
            ("cluster.endpoints.upstream_rq_active", 0),
            ("cluster.picker.upstream_rq_active", logs),
        ):
            await eventually(lambda stat=stat: self.stat(stat), lambda n, most=most: n <= most, stat)
        await until(lambda: not any(engine.running for engine in self.engines), "the engines are idle")
        if self.base_files:
            most = self.base_files + ENVOY_WORKERS  # not every thread of the proxy may have been at work before
            await until(
                lambda: self.picker.files() <= most,
                f"at most {most} files open in the picker",
                lambda: [link.readlink() for link in self.picker.links()],
            )

    async def stat(self, name: str) -> int:
        """Return a number of the proxy's statistics."""
        _, text = await get(self.proxy.settings.admin_port, f"/stats?filter=^{re.escape(name)}$")
        return int(text.partition(": ")[2])


async def get(port: int, path: str) -> tuple[int, str]:
    """Return status and text of a page, over a connection of its own. Raises: OSError."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
        await writer.wait_closed()
    if not head:
        raise ConnectionResetError(f"no answer from port {port}")
    if b"transfer-encoding: chunked" in head.lower():
        body = b"".join(re.split(rb"\r?\n?[0-9a-f]+\r\n", body))
    return int(head.split()[1]), body.decode()


async def eventually(ask: Callable[[], Any], condition: Callable[[Any], bool], what: str) -> None:
    """Return once the answer of ``ask`` fulfills ``condition``. Raises: AssertionError if it does not in time."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + PATIENCE_S
    while not condition(seen := await ask()):
        assert clock() < deadline, f"never: {what}; the last was {seen}"
        await asyncio.sleep(0.02)


@asynccontextmanager
async def site(
    folder: Path,
    mode: Mode = Mode.STANDALONE,
    *,
    engines: int = 3,
    fail_open: bool = True,
    transport: Transport = Transport.WIRE,
    config_file: Path | None = None,
    **settings: Any,
) -> AsyncIterator[Site]:
    """Start everything and yield the site. In full duplex only a proxy that fails closed keeps its promise."""
    lean = mode is Mode.STANDALONE
    made = [FragileEngine() for _ in range(engines)]
    async with AsyncExitStack() as stack:
        for engine in made:
            await engine.start()
            stack.callback(engine.die)
        picker = Picker(
            {
                "endpoint": [engine.address for engine in made],
                "grpc_port": claim(LOOPBACK, 0, "--grpc-port"),
                "metrics_port": claim(LOOPBACK, 0, "--metrics-port"),
                "host": LOOPBACK,
                "response_mode": ("lean" if lean else "full"),
                "transport": transport.value,
                "config_file": str(config_file) if config_file is not None else None,
            },
            folder,
        )
        await picker.start()
        stack.push_async_callback(picker.kill)
        chosen = ProxySettings(
            host=LOOPBACK,
            port=claim(LOOPBACK, 0, "--port"),
            admin_port=claim(LOOPBACK, 0, "--admin-port"),
            picker_port=picker.options["grpc_port"],
            endpoints_file=folder / "endpoints.json",
            request_mode=RequestMode.BUFFERED if lean else RequestMode.DUPLEX,
            response_mode=ResponseMode.LEAN if lean else ResponseMode.FULL,
            **({"fail_open": fail_open and lean} | settings),
        )
        write_endpoints(chosen.endpoints_file, [engine.address for engine in made])
        proxy = Proxy(find_envoy(None), chosen, folder)
        await proxy.start()
        stack.push_async_callback(proxy.stop, 0.0)
        here = Site(mode, proxy, picker, made, Storm(chosen.port), folder=folder)
        await here.warm()
        yield here
