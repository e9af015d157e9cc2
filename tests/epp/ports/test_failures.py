"""Failed connections are distinguished, counted and logged, without a flood of lines."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvloop

from epp.config.wiring.build import build
from epp.ports.door import Failed, Failure
from epp.ports.failures import ANOTHER_EVERY_S, FailedConnections, Port, sentence
from epp.ports.options import MetricsTlsOptions, TlsOptions
from epp.ports.tls import write_self_signed
from epp.server.app import App
from epp.server.settings import Settings

LOOPBACK = "127.0.0.1"
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
HTTP1 = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
TLS13 = TlsOptions(min_version="VersionTLS13")
ONE_SUITE = TlsOptions(cipher_suites=("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",))

Speaks = Callable[[int], Awaitable[None]]
runners = pytest.mark.parametrize("runner", [asyncio.run, uvloop.run])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_self_signed(tmp_path)
    return tmp_path


@asynccontextmanager
async def running(**settings: Any) -> AsyncIterator[App]:
    app = App(build(), Settings(endpoints=("127.0.0.1:9",), health_port=0, **settings))
    await app.start()
    try:
        yield app
    finally:
        await app.stop(0.0)


def writes(data: bytes) -> Speaks:
    """Send ``data`` as a client, and read until the port closes the connection."""

    async def speak(port: int) -> None:
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        writer.write(data)
        with suppress(ConnectionError):
            writer.write_eof()
            await reader.read()
        writer.close()

    return speak


def shakes_hands(alpn: str | None = "h2", highest: ssl.TLSVersion | None = None, ciphers: str = "") -> Speaks:
    """Try TLS as a client, and wait for the result."""

    async def speak(port: int) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if alpn:
            context.set_alpn_protocols([alpn])
        if highest:
            context.maximum_version = highest
        if ciphers:
            context.set_ciphers(ciphers)
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(LOOPBACK, port, ssl=context)
            writer.write(HTTP2)
            await reader.read()
            writer.close()

    return speak


async def counts(app: App, *, encrypted: bool = False) -> dict[tuple[str, str], int]:
    """Return the counts on /metrics without zeros."""
    if encrypted:
        readings = list(app._failed.readings())  # the page asks for a certificate
        return {key: int(count) for key, count in readings[0].samples if count}  # type: ignore[misc]
    async with aiohttp.ClientSession() as http, http.get(f"http://{LOOPBACK}:{app.metrics_port}/metrics") as response:
        page = await response.text()
    found = re.findall(r'^tierwise_failed_connections_total\{kind="(.*)",port="(.*)"\} (\S+)$', page, re.MULTILINE)
    assert found
    return {(port, kind): int(float(count)) for kind, port, count in found if float(count)}


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "epp.ports.failures"]


@runners
@pytest.mark.parametrize(
    ("tls", "speak", "kind", "words"),
    [
        (None, shakes_hands(), "tls-to-plaintext", r"^127\.0\.0\.1 speaks TLS to port \d+, .*--secure-serving=false"),
        (None, writes(HTTP1), "http1", "speaks HTTP/1 to port"),
        (TlsOptions(), writes(HTTP2), "plaintext-to-tls", "does not speak TLS to port"),
        (TlsOptions(), writes(HTTP1), "plaintext-to-tls", "does not speak TLS to port"),
        (TLS13, shakes_hands(highest=ssl.TLSVersion.TLSv1_2), "version", "tls_maximum_protocol_version: TLSv1_3"),
        (ONE_SUITE, shakes_hands(highest=ssl.TLSVersion.TLSv1_2, ciphers="ECDHE-ECDSA-AES128-GCM-SHA256"), "cipher",
         "--tls-cipher-suites"),
        (TlsOptions(), shakes_hands(alpn=None), "alpn", r"alpn_protocols: \[h2\]"),
    ],
)  # fmt: skip
def test_what_cannot_talk_to_the_ext_proc_port_is_named_and_counted(
    runner: Callable[[Awaitable[None]], None], tls: TlsOptions | None, speak: Speaks, kind: str, words: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    async def scenario() -> None:
        async with running(tls=tls) as app:
            await asyncio.wait_for(speak(app.grpc_port), 20)
            assert await counts(app) == {("ext-proc", kind): 1}
            (line,) = said(caplog)
            assert re.search(words, line)
            assert str(app.grpc_port) in line

    runner(scenario())


@runners
def test_tls_to_the_plaintext_ports_of_health_and_metrics_is_named(
    runner: Callable[[Awaitable[None]], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with running() as app:
            await asyncio.wait_for(shakes_hands()(app.health_port), 20)
            await asyncio.wait_for(shakes_hands()(app.metrics_port), 20)
            assert await counts(app) == {("health", "tls-to-plaintext"): 1, ("metrics", "tls-to-plaintext"): 1}
            of_health, of_metrics = said(caplog)
            assert "(always)" in of_health
            assert "(no --metrics-cert-dir)" in of_metrics

    runner(scenario())


@runners
@pytest.mark.parametrize(
    ("speak", "kind", "words"),
    [
        (writes(HTTP1), "plaintext-to-tls", "https://"),
        (shakes_hands(alpn=None), "client-certificate", "--metrics-client-ca-file"),
    ],
)
def test_what_cannot_talk_to_the_encrypted_metrics_port_is_named(
    runner: Callable[[Awaitable[None]], None], speak: Speaks, kind: str, words: str, folder: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    async def scenario() -> None:
        tls = MetricsTlsOptions(cert_dir=folder, client_ca_file=folder / "tls.crt")
        async with running(metrics_tls=tls) as app:
            await asyncio.wait_for(speak(app.metrics_port), 20)
            assert await counts(app, encrypted=True) == {("metrics", kind): 1}
            (line,) = said(caplog)
            assert words in line

    runner(scenario())


@runners
@pytest.mark.parametrize("tls", [None, TlsOptions()])
def test_who_only_looks_whether_a_port_is_open_is_no_failure(
    runner: Callable[[Awaitable[None]], None], tls: TlsOptions | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with running(tls=tls) as app:
            await asyncio.wait_for(writes(b"")(app.grpc_port), 20)
            assert await counts(app) == {}
            assert not said(caplog)

    runner(scenario())


@runners
def test_a_handshake_that_never_ends_does_not_keep_the_picker_from_stopping(
    runner: Callable[[Awaitable[None]], None],
) -> None:
    async def scenario() -> None:
        with socket.socket() as client:
            client.setblocking(False)
            async with running(tls=TlsOptions()) as app:
                loop = asyncio.get_running_loop()
                await loop.sock_connect(client, (LOOPBACK, app.grpc_port))
                await loop.sock_sendall(client, b"\x16\x03\x01")
                await counts(app)  # by now it was accepted
            with suppress(ConnectionError):
                assert await asyncio.wait_for(loop.sock_recv(client, 1), 20) == b""

    runner(scenario())


def test_the_log_has_a_line_a_minute_for_each_kind_whatever_comes(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    failed = FailedConnections(lambda: now[0])
    report = failed.at(Port.EXT_PROC, encrypted=True)
    for i in range(10_000):
        report(Failed(Failure.VERSION, f"10.0.{i >> 8}.{i & 255}", 9002, "unsupported protocol"))
    report(Failed(Failure.CIPHER, "10.9.9.9", 9002))
    first, other = said(caplog)
    assert first.startswith("10.0.0.0 offers port 9002 no TLS version")
    assert other.startswith("10.9.9.9 offers port 9002 no cipher suite")
    now[0] = ANOTHER_EVERY_S
    report(Failed(Failure.VERSION, "10.0.0.1", 9002))
    assert said(caplog)[2].endswith("(9999 more like this since the last line)")
    (reading,) = failed.readings()
    assert dict(reading.samples)["ext-proc", "version"] == 10_001  # type: ignore[arg-type]


@pytest.mark.parametrize("failure", list(Failure))
@pytest.mark.parametrize("port", list(Port))
def test_every_kind_has_a_sentence_that_says_who_and_where(port: Port, failure: Failure) -> None:
    if port is Port.HEALTH and failure is Failure.PLAINTEXT_TO_TLS:
        pytest.skip("that port is plaintext")
    text = sentence(port, Failed(failure, "10.0.0.9", 9002))
    assert text.startswith("10.0.0.9 ")
    assert "port 9002" in text


def test_failures_are_logged_as_warnings(caplog: pytest.LogCaptureFixture) -> None:
    FailedConnections().at(Port.EXT_PROC, encrypted=False)(Failed(Failure.HTTP1, "10.0.0.9", 9002))
    assert [r.levelno for r in caplog.records] == [logging.WARNING]
