"""A client that is closed leaves no socket open, whatever its server does."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from epp.kube.client import Client
from epp.kube.errors import KubeError
from epp.kube.objects import Decoder, ListOf, Pod
from epp.ports.tls import self_signed

PODS = Decoder(ListOf[Pod])
ANSWER = b'{"metadata":{"resourceVersion":"1"}}'
Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]


@dataclass
class Trusting:
    """An ``Access`` without credentials that trusts any certificate."""

    server: str
    namespace: str | None = None
    tls_name: str | None = None
    proxy: str | None = None

    async def headers(self, *, renew: bool) -> Mapping[str, str]:
        return {}

    def tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context


@asynccontextmanager
async def tls_server(handle: Handle, folder: Path) -> AsyncIterator[str]:
    certificate, key = self_signed()
    (folder / "tls.crt").write_bytes(certificate)
    (folder / "tls.key").write_bytes(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    writers = list[asyncio.StreamWriter]()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with suppress(asyncio.IncompleteReadError, OSError):  # the client may leave before its request is sent
            await reader.readuntil(b"\r\n\r\n")
            handle(reader, writer)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context)
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)


def opened(client: Client) -> list[int]:
    return [one.fileno() for one in client._connections._sockets if one.fileno() >= 0]


@pytest.mark.parametrize("connection", ["close", "keep-alive"])
def test_a_server_that_never_answers_a_tls_shutdown_holds_no_socket_open(connection: str, tmp_path: Path) -> None:
    def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(ANSWER)}\r\nConnection: {connection}\r\n\r\n"
        writer.write(head.encode() + ANSWER)
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # the client's close_notify is never read

    async def work() -> None:
        async with tls_server(answer, tmp_path) as url:
            async with Client(Trusting(url)) as client:
                await client.get("/pods", PODS)
                assert len(opened(client)) == 1
            assert opened(client) == []

    asyncio.run(work())


def test_a_request_that_is_cancelled_in_its_handshake_leaves_no_socket(tmp_path: Path) -> None:
    async def work() -> None:
        async with tls_server(lambda _, __: None, tmp_path) as url:
            for turns in range(40):  # one of them is each step of connecting, of the handshake and of the request
                async with Client(Trusting(url)) as client:
                    task = asyncio.create_task(client.get("/pods", PODS))
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    task.cancel()
                    with pytest.raises((asyncio.CancelledError, KubeError)):
                        await task
                assert opened(client) == [], turns

    asyncio.run(work())
