"""What a node answers the API server: logs of containers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from aiohttp import web

from epp.ports.tls import self_signed
from tests.cluster.node.pods import PodRun

LOOK_S = 0.1


class Answers:
    """The HTTPS server of a node."""

    def __init__(self, runs: Mapping[str, PodRun], folder: Path) -> None:
        self._runs, self._folder = runs, folder
        self._runner: web.AppRunner | None = None

    async def listen(self, address: str, port: int) -> None:
        """Begin to answer the API server."""
        application = web.Application()
        application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        self._runner = web.AppRunner(application, handle_signals=False)
        await self._runner.setup()
        await web.TCPSite(self._runner, address, port, ssl_context=self._certificate()).start()

    async def close(self) -> None:
        """Stop answering the API server."""
        if self._runner is not None:
            await self._runner.cleanup()

    def run(self, request: web.Request) -> PodRun:
        """Return the pod that a request names. Raises: HTTPNotFound."""
        wanted = request.match_info["namespace"], request.match_info["pod"]
        for one in self._runs.values():
            if (one.pod["metadata"]["namespace"], one.pod["metadata"]["name"]) == wanted:
                return one
        raise web.HTTPNotFound(text=f"no pod {'/'.join(wanted)} on this node")

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        run, name = self.run(request), request.match_info["container"]
        previous = request.query.get("previous") == "true"
        file = run.log(name, -1 if previous else None)
        if file is None:
            raise web.HTTPBadRequest(text=f'container "{name}" has no log{" of an earlier start" * previous}')
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        with file.open("rb") as log:
            text = log.read()
            if (lines := request.query.get("tailLines")) is not None:
                text = b"".join(text.splitlines(keepends=True)[-int(lines) :]) if int(lines) else b""
            with suppress(OSError):
                await response.write(text)
                while request.query.get("follow") == "true":
                    if more := log.read():
                        await response.write(more)
                    elif run.log(name) != file or run.ended(name):
                        break
                    await asyncio.sleep(LOOK_S)
        return response

    def _certificate(self) -> ssl.SSLContext:
        certificate, key = self_signed()
        for name, content in (("kubelet.crt", certificate), ("kubelet.key", key)):
            (self._folder / name).write_bytes(content)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._folder / "kubelet.crt", self._folder / "kubelet.key")
        return context
