"""Connections as a kubeconfig describes them: a client certificate, another name, and a proxy."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from epp.kube.client import Client
from epp.kube.errors import Unreachable
from epp.kube.kubeconfig.files import open_kubeconfig
from epp.kube.objects import Decoder, ListOf, Pod
from epp.ports.http_port import HttpPort
from epp.ports.tls import self_signed
from tests.epp.kube.certificates import Authority

PODS = Decoder(ListOf[Pod])


class Server:
    """An API server with TLS that answers every request with the subject of the client's certificate."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        self.users: list[str] = []
        self.certificate, key = self_signed()
        (folder / "tls.crt").write_bytes(self.certificate)
        (folder / "tls.key").write_bytes(key)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        self.context.load_verify_locations(cadata=authority.pem.decode())
        self.context.verify_mode = ssl.CERT_OPTIONAL

    async def handle(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        shown = request.transport.get_extra_info("peercert") or {"subject": ()}
        self.users.append(dict(pair for part in shown["subject"] for pair in part).get("commonName", ""))
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})


@asynccontextmanager
async def tls_server(folder: Path, authority: Authority) -> AsyncIterator[tuple[Server, int]]:
    server, port, app = Server(folder, authority), HttpPort(), web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    number = await port.open(app, "127.0.0.1", 0, server.context)
    try:
        yield server, number
    finally:
        await port.close()


@asynccontextmanager
async def proxy(to: int, asked: list[bytes]) -> AsyncIterator[int]:
    """A proxy that connects every CONNECT to one port, and writes down for whom."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)
        writer.transport.abort()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0])
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", to)
        writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        await asyncio.gather(copy(reader, up_writer), copy(up_reader, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


def written(folder: Path, user: dict[str, Any], **cluster: Any) -> str:
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "c", "user": user}],
    }
    (folder / "config").write_text(yaml.safe_dump(content))
    return str(folder / "config")


async def listed(file: str) -> None:
    async with Client(await open_kubeconfig([file]), answer_s=20.0) as client:
        await client.get("/api/v1/pods", PODS)


def data(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


def test_the_server_sees_the_client_certificate(tmp_path: Path) -> None:
    async def work() -> None:
        authority = Authority()
        async with tls_server(tmp_path, authority) as (server, port):
            certificate, key = authority.client("picker")
            user = {"client-certificate-data": data(certificate), "client-key-data": data(key)}
            cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority-data": data(server.certificate)}
            await listed(written(tmp_path, user, **cluster))
            assert server.users == ["picker"]

    asyncio.run(work())


def test_a_server_of_another_name_is_reached_by_tls_server_name_alone(tmp_path: Path) -> None:
    async def work() -> None:
        async with tls_server(tmp_path, Authority()) as (server, port):
            cluster = {"server": f"https://127.0.0.2:{port}", "certificate-authority-data": data(server.certificate)}
            asked: list[bytes] = []
            async with proxy(port, asked) as door:
                cluster["proxy-url"] = f"http://127.0.0.1:{door}"
                with pytest.raises(Unreachable, match="its certificate is not trusted"):
                    await listed(written(tmp_path, {"token": "t"}, **cluster))
                await listed(written(tmp_path, {"token": "t"}, **cluster, **{"tls-server-name": "localhost"}))
            assert asked == [f"CONNECT 127.0.0.2:{port} HTTP/1.1".encode()] * 2

    asyncio.run(work())
