"""Whatever answers at the API server's address, the error names it within a deadline."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from epp.kube import client as client_module
from epp.kube.client import Client
from epp.kube.errors import KubeError, Unreachable
from epp.kube.events import EventDecoder
from epp.kube.objects import Decoder, ListOf, Pod
from epp.ports.http_port import HttpPort
from epp.ports.tls import self_signed
from tests.epp.kube.access import TokenAccess
from tests.epp.kube.api_server import ApiServer

PODS = "/api/v1/namespaces/default/pods"
LIST = Decoder(ListOf[Pod])
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Trusting(TokenAccess):
    """An identity at a server with TLS, which trusts one certificate authority."""

    authority: bytes = b""

    def tls(self) -> ssl.SSLContext | None:
        return ssl.create_default_context(cadata=self.authority.decode())


@asynccontextmanager
async def answering(answer: Answer, *, answer_s: float = 5.0, silent_s: float = 5.0) -> AsyncIterator[Client]:
    """A client of a server that answers every connection with ``answer``, and then keeps it open."""
    open_now = set[asyncio.StreamWriter]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_now.add(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            await answer(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        async with Client(TokenAccess(url), answer_s=answer_s, silent_s=silent_s) as client:
            yield client
    finally:
        for writer in open_now:
            writer.transport.abort()
        server.close()
        await server.wait_closed()


async def refusal(client: Client) -> str:
    with pytest.raises(Unreachable) as refused:
        await client.get(PODS, LIST)
    return str(refused.value)


async def first_event(client: Client) -> None:
    async with client.watch(PODS, {}, EventDecoder(Pod)) as events:
        await anext(events)


def sends(*pieces: bytes, ends: bool = True) -> Answer:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if ends:
            writer.close()

    return answer


async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + b"x" * (1 << 16) + b"\r\n")
        await writer.drain()


@pytest.mark.parametrize(
    ("pieces", "told"),
    [
        ((HEAD + b'Content-Length: 500\r\n\r\n{"items": [',), "127.0.0.1"),
        ((HEAD + b"Transfer-Encoding: chunked\r\n\r\n",), "127.0.0.1"),
        ((HEAD + b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"ite', b"ms"), "127.0.0.1"),
        ((HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",), "127.0.0.1"),
        ((HEAD + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nno zi",), "127.0.0.1"),
        ((b"SSH-2.0-OpenSSH_9.6\r\n",), "127.0.0.1"),
        ((b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",), "127.0.0.1"),
        ((), "127.0.0.1"),
    ],
    ids=["short-body", "no-chunk", "cut-chunk", "bad-chunk", "bad-gzip", "other-protocol", "large-header", "nothing"],
)
def test_an_answer_that_is_cut_off_or_no_http_is_unreachable(pieces: tuple[bytes, ...], told: str) -> None:
    async def work() -> None:
        async with answering(sends(*pieces)) as client:
            sentence = await refusal(client)
            assert sentence.startswith("GET http://127.0.0.1:")
            assert len(sentence) < 1000
            assert told in sentence

    asyncio.run(work())


def test_an_endless_list_and_an_endless_event_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_BODY_BYTES", 1 << 20)

    async def work() -> None:
        async with answering(endless) as client:
            assert "an answer of more than 1,048,576 bytes" in await refusal(client)
            with pytest.raises(Unreachable, match="an event of more than 1,048,576 bytes"):
                await first_event(client)

    asyncio.run(work())


def test_an_answer_that_comes_too_slowly_ends_at_its_deadline() -> None:
    async def dripping(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Content-Length: 100000\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.01)

    async def work() -> None:
        async with answering(dripping, answer_s=0.3) as client:
            assert "nothing came for 0.3 s; check the network" in await refusal(client)

    asyncio.run(work())


def test_a_half_open_connection_ends_at_its_deadline() -> None:
    async def work() -> None:
        async with answering(sends(ends=False), answer_s=0.3, silent_s=0.3) as client:
            assert "nothing came for 0.3 s; check the network" in await refusal(client)
            with pytest.raises(Unreachable, match=r"watch http.*nothing came for 0.3 s"):
                await first_event(client)

    asyncio.run(work())


def test_a_tls_handshake_that_never_ends_ends_at_its_deadline() -> None:
    async def work() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:  # accepts, and is silent
            access = Trusting(f"https://127.0.0.1:{listening.getsockname()[1]}")
            access.authority = self_signed()[0]
            async with Client(access, answer_s=0.3) as client:
                assert "nothing came for 0.3 s" in await refusal(client)

    asyncio.run(work())


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "https://no-such-name.invalid"])
def test_a_server_that_is_not_there_is_named(url: str) -> None:
    async def work() -> None:
        async with Client(TokenAccess(url), answer_s=5.0) as client:
            assert f"GET {url}{PODS}: " in await refusal(client)

    asyncio.run(work())


def pair(folder: Path, *, from_hours: float, to_hours: float) -> ssl.SSLContext:
    """A certificate of localhost for some hours around now, and the context of its server."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now + timedelta(hours=from_hours))
    builder = builder.not_valid_after(now + timedelta(hours=to_hours))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "tls.crt").write_bytes(pem)
    (folder / "tls.key").write_bytes(private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return context


@pytest.mark.parametrize(
    ("hours", "other", "told"),
    [
        ((0.5, 9.0), False, "is not valid now: .*not yet valid.*; check the clock of this machine"),
        ((-9.0, -0.5), False, "is not valid now: .*expired.*; check the clock of this machine"),
        ((-1.0, 9.0), True, "is not trusted: .*; check the certificate authority"),
    ],
)
def test_a_certificate_of_another_time_or_authority_is_named(
    tmp_path: Path, hours: tuple[float, float], other: bool, told: str
) -> None:
    async def work() -> None:
        from aiohttp import web

        context, port, app = pair(tmp_path, from_hours=hours[0], to_hours=hours[1]), HttpPort(), web.Application()
        app.router.add_route("*", "/{path:.*}", ApiServer().handle)
        number = await port.open(app, "127.0.0.1", 0, context)
        access = Trusting(f"https://localhost:{number}")
        access.authority = self_signed()[0] if other else (tmp_path / "tls.crt").read_bytes()
        try:
            async with Client(access, answer_s=5.0) as client:
                with pytest.raises(Unreachable, match=told):
                    await client.get(PODS, LIST)
        finally:
            await port.close()

    asyncio.run(work())


@pytest.mark.parametrize("server", ["http://10.255.255.1", "https://10.255.255.1"])
def test_no_error_shows_the_password_of_a_proxy(server: str) -> None:
    async def refused(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async def work() -> None:
        async with answering(refused) as proxy:
            access = TokenAccess(server)
            for port in (proxy.access.server.rpartition(":")[2], "9"):
                access.proxy = f"http://alice:s3cret@127.0.0.1:{port}"
                async with Client(access, answer_s=5.0) as client:
                    with pytest.raises(KubeError) as error:
                        await client.get(PODS, LIST)
                    assert f"GET {server}{PODS}: " in str(error.value)
                    assert "s3cret" not in str(error.value)

    asyncio.run(work())


def test_a_proxy_that_repeats_the_headers_puts_no_token_into_an_error() -> None:
    echo = HEAD + b"Connection: close\r\n\r\n<html>Authorization: Bearer a-token</html>"

    async def work() -> None:
        async with answering(sends(echo)) as client:
            sentence = await refusal(client)
            assert "Authorization: Bearer ...</html>" in sentence
            assert "a-token" not in sentence

    asyncio.run(work())
