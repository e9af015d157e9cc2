"""What a node answers the API server: logs, commands in containers, and forwarded ports."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from epp.ports.tls import self_signed
from tests.cluster.node import streaming
from tests.cluster.node.pods import PodRun
from tests.cluster.node.spdy import Session

LOOK_S = 0.1
SPEAKS = ("v4.channel.k8s.io", "portforward.k8s.io")


@dataclass(frozen=True)
class Request:
    """A request's path, query and headers, whose names are in lower case."""

    path: list[str]
    query: dict[str, list[str]]
    headers: list[tuple[str, str]]

    def one(self, name: str) -> str | None:
        """Return the first value of a query parameter."""
        return self.query.get(name, [None])[0]  # type: ignore[list-item]


class Answers:
    """The HTTPS server of a node. Every answer ends its connection."""

    def __init__(self, runs: Mapping[str, PodRun], folder: Path) -> None:
        self._runs, self._folder = runs, folder
        self._server: asyncio.Server | None = None

    async def listen(self, address: str, port: int) -> None:
        """Begin to answer the API server."""
        self._server = await asyncio.start_server(self._answer, address, port, ssl=self._certificate())

    def close(self) -> None:
        """Stop answering the API server."""
        if self._server is not None:
            self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {
            "containerLogs": self._logs, "exec": self._exec, "portForward": self._forward,
        }  # fmt: skip
        try:
            request = await _read(reader)
            run = self._run(request)
            handler = handlers.get(request.path[0])
            if run is None or handler is None:
                _head(writer, "404 Not Found", [])
                writer.write(f"nothing at /{'/'.join(request.path)} on this node\n".encode())
            else:
                await handler(request, run, reader, writer)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has left
        finally:
            writer.close()

    def _run(self, request: Request) -> PodRun | None:
        wanted = request.path[1:3]
        for one in self._runs.values():
            if [one.pod["metadata"]["namespace"], one.pod["metadata"]["name"]] == wanted:
                return one
        return None

    async def _logs(
        self, request: Request, run: PodRun, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        name = request.path[3]
        file = run.log(name, -1 if request.one("previous") == "true" else None)
        if file is None:
            _head(writer, "400 Bad Request", [])
            writer.write(f'container "{name}" has no such log\n'.encode())
            return
        _head(writer, "200 OK", [("Content-Type", "text/plain")])
        with file.open("rb") as log:
            text, lines = log.read(), request.one("tailLines")
            if lines is not None:
                text = b"".join(text.splitlines(keepends=True)[-int(lines) :]) if int(lines) else b""
            writer.write(text)
            while request.one("follow") == "true" and run.log(name) == file:
                ended = run.ended(name)
                writer.write(log.read())
                await writer.drain()
                if ended or reader.at_eof():
                    break
                await asyncio.sleep(LOOK_S)

    async def _exec(
        self, request: Request, run: PodRun, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        container = run.container(request.path[3])
        if container is None:
            _head(writer, "400 Bad Request", [])
            writer.write(f"container {request.path[3]} does not run\n".encode())
            return
        session = _switched(request, reader, writer)
        wanted = ["error", *(n for n, q in streaming.PIPES.items() if request.one(q) in ("1", "true"))]
        await streaming.execute(session, container.inside(request.query["command"]), wanted)

    async def _forward(
        self, request: Request, run: PodRun, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await streaming.forward(_switched(request, reader, writer), run)

    def _certificate(self) -> ssl.SSLContext:
        certificate, key = self_signed()
        for name, content in (("kubelet.crt", certificate), ("kubelet.key", key)):
            (self._folder / name).write_bytes(content)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._folder / "kubelet.crt", self._folder / "kubelet.key")
        return context


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    url = urlsplit(head[0].split(" ")[1])
    headers = []
    for line in head[1:]:
        name, _, value = line.partition(":")
        headers.append((name.lower(), value.strip()))
    return Request(url.path.strip("/").split("/"), parse_qs(url.query), headers)


def _head(writer: asyncio.StreamWriter, status: str, headers: list[tuple[str, str]]) -> None:
    lines = [f"{name}: {value}\r\n" for name, value in (headers or [("Content-Type", "text/plain")])]
    ends = "" if status.startswith("101") else "Connection: close\r\n"
    writer.write(f"HTTP/1.1 {status}\r\n{''.join(lines)}{ends}\r\n".encode())


def _switched(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Session:
    """Return the session that the connection becomes."""
    offered = [word.strip() for name, value in request.headers for word in value.split(",")
               if name == "x-stream-protocol-version"]  # fmt: skip
    chosen = [("X-Stream-Protocol-Version", word) for word in offered if word in SPEAKS][:1]
    _head(writer, "101 Switching Protocols", [("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1"), *chosen])
    return Session(reader, writer)
