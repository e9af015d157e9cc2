"""Certificates that change while a port is open: on both transports and on the metrics port."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from grpc import aio
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from epp.config.wiring.build import build
from epp.errors import ConfigError
from epp.ports.certificates import Certificate
from epp.ports.options import MetricsTlsOptions, TlsOptions
from epp.ports.tls import metrics_certificate, metrics_context, write_self_signed
from epp.server.app import App
from epp.server.settings import Settings, Transport

LOOPBACK = "127.0.0.1"
PATIENCE_S = 20.0
Swap = Callable[[Path, Path], None]


def in_place(folder: Path, source: Path) -> None:
    for name in ("tls.crt", "tls.key"):
        (folder / name).write_bytes((source / name).read_bytes())


def renamed(folder: Path, source: Path) -> None:
    for name in ("tls.key", "tls.crt"):
        (folder / f"{name}.new").write_bytes((source / name).read_bytes())
        (folder / f"{name}.new").replace(folder / name)


def as_mounted_secret(folder: Path, source: Path) -> None:
    """Write a secret as the kubelet does: files link into ``..data``, a link to a dated folder that is swapped."""
    dated = folder / f"..{source.name}"
    dated.mkdir()
    in_place(dated, source)
    (folder / "..data_tmp").symlink_to(dated.name)
    (folder / "..data_tmp").replace(folder / "..data")
    for name in ("tls.crt", "tls.key"):
        if not (folder / name).is_symlink():
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(f"..data/{name}")


@pytest.fixture
def issued(tmp_path: Path) -> list[Path]:
    """Return three folders with certificates."""
    folders = [tmp_path / f"issued-{number}" for number in range(3)]
    for folder in folders:
        folder.mkdir()
        write_self_signed(folder)
    return folders


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    folder = tmp_path / "mounted"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("swap", [in_place, renamed, as_mounted_secret], ids=lambda swap: swap.__name__)
def test_a_new_pair_is_taken_however_it_is_put_there(issued: list[Path], mounted: Path, swap: Swap) -> None:
    swap(mounted, issued[0])
    certificate = Certificate.from_folder(mounted)
    assert not certificate.look(), "nothing has changed"
    for number, folder in enumerate(issued[1:], 1):
        swap(mounted, folder)
        assert certificate.look()
        assert certificate.pair == ((folder / "tls.crt").read_bytes(), (folder / "tls.key").read_bytes())
        assert (certificate.reloads, certificate.failures) == (number, 0)


def test_half_of_a_new_pair_is_refused_once_and_the_whole_one_taken(
    issued: list[Path], mounted: Path, caplog: pytest.LogCaptureFixture
) -> None:
    in_place(mounted, issued[0])
    certificate = Certificate.from_folder(mounted)
    in_use = certificate.pair
    (mounted / "tls.crt").write_bytes((issued[1] / "tls.crt").read_bytes())
    with caplog.at_level(logging.ERROR):
        assert not certificate.look()
        assert not certificate.look()
    assert (certificate.pair, certificate.failures, len(caplog.records)) == (in_use, 1, 1)
    assert "the certificate in use stays" in caplog.text
    (mounted / "tls.key").write_bytes((issued[1] / "tls.key").read_bytes())
    assert certificate.look()
    assert certificate.pair != in_use


@pytest.mark.parametrize("broken", [b"", b"-----BEGIN CERTIFICATE-----\nMIIB", b"\0" * (1 << 21), None])
def test_what_is_no_certificate_is_refused(issued: list[Path], mounted: Path, broken: bytes | None) -> None:
    in_place(mounted, issued[0])
    certificate = Certificate.from_folder(mounted)
    in_use = certificate.pair
    if broken is None:
        (mounted / "tls.crt").unlink()
    else:
        (mounted / "tls.crt").write_bytes(broken)
    assert not certificate.look()
    assert (certificate.pair, certificate.failures) == (in_use, 1)


def test_a_listener_that_refuses_a_pair_keeps_the_old_one(issued: list[Path], mounted: Path) -> None:
    in_place(mounted, issued[0])
    certificate = Certificate.from_folder(mounted)

    def refuse(pair: object) -> None:
        raise ConfigError("not this one")

    certificate.listeners.append(refuse)
    in_use = certificate.pair
    in_place(mounted, issued[1])
    assert not certificate.look()
    assert certificate.pair == in_use


@asynccontextmanager
async def running(**settings: object) -> AsyncIterator[App]:
    app = App(build(), Settings(endpoints=(f"{LOOPBACK}:9",), **settings))  # type: ignore[arg-type]
    await app.start()
    try:
        yield app
    finally:
        await app.stop(0.0)


async def shown(port: int, protocol: str) -> bytes:
    """Return the certificate that a new connection sees."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([protocol])
    _, writer = await asyncio.open_connection(LOOPBACK, port, ssl=context)
    try:
        seen = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        assert isinstance(seen, bytes)
        return seen
    finally:
        writer.transport.abort()


def der(folder: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert((folder / "tls.crt").read_text())


async def health(channel: aio.Channel) -> int:
    check = channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        request_serializer=HealthCheckRequest.SerializeToString,
        response_deserializer=HealthCheckResponse.FromString,
    )
    return int((await check(HealthCheckRequest(), timeout=PATIENCE_S)).status)


@pytest.mark.parametrize("transport", list(Transport), ids=lambda transport: transport.value)
def test_new_connections_see_the_new_certificate_and_open_ones_go_on(
    issued: list[Path], mounted: Path, transport: Transport
) -> None:
    async def scenario() -> None:
        as_mounted_secret(mounted, issued[0])
        tls = TlsOptions(cert_path=mounted, reload=True)
        metrics_tls = MetricsTlsOptions(cert_dir=mounted, tls=tls)
        async with running(transport=transport, tls=tls, metrics_tls=metrics_tls) as app:
            ports = {app.grpc_port: "h2", app.metrics_port: "http/1.1"}
            for port, protocol in ports.items():
                assert await shown(port, protocol) == der(issued[0])
            credentials = grpc.ssl_channel_credentials((issued[0] / "tls.crt").read_bytes())
            async with aio.secure_channel(f"localhost:{app.grpc_port}", credentials) as channel:
                assert await health(channel) == HealthCheckResponse.SERVING
                as_mounted_secret(mounted, issued[1])
                async with asyncio.timeout(PATIENCE_S):
                    for port, protocol in ports.items():
                        while await shown(port, protocol) != der(issued[1]):
                            pass
                assert await health(channel) == HealthCheckResponse.SERVING, "on the connection that was open"
            page = await metrics(app, issued[1] / "tls.crt")
            assert 'tierwise_certificate_reloads_total{flag="--cert-path"} 1.0' in page
            assert 'tierwise_certificate_reloads_total{flag="--metrics-cert-dir"} 1.0' in page

    asyncio.run(scenario())


async def metrics(app: App, authority: Path, client: Path | None = None) -> str:
    context = ssl.create_default_context(cafile=str(authority))
    if client is not None:
        context.load_cert_chain(client / "tls.crt", client / "tls.key")
    async with aiohttp.ClientSession() as session:
        url = f"https://localhost:{app.metrics_port}/metrics"
        async with session.get(url, ssl=context, headers={"Accept": "text/plain"}) as response:
            assert response.status == 200
            return await response.text()


@pytest.fixture
def clients(tmp_path: Path) -> tuple[Path, Path]:
    """Return two clients' certificates, each of which is its own authority."""
    folders = tmp_path / "client", tmp_path / "stranger"
    for folder in folders:
        folder.mkdir()
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, folder.name)])
        certificate = (
            x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(datetime.now(UTC) - timedelta(hours=1))
            .not_valid_after(datetime.now(UTC) + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        (folder / "tls.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
        (folder / "tls.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return folders


def test_the_metrics_port_lets_in_only_clients_of_the_named_authorities(
    issued: list[Path], clients: tuple[Path, Path]
) -> None:
    server, (client, stranger) = issued[0], clients

    async def scenario() -> None:
        options = MetricsTlsOptions(cert_dir=server, client_ca_file=client / "tls.crt")
        async with running(metrics_tls=options) as app:
            assert "llm_d_epp_ready_endpoints" in await metrics(app, server / "tls.crt", client)
            for wrong in (stranger, None):
                with pytest.raises((aiohttp.ClientError, ssl.SSLError, ConnectionError)):
                    await metrics(app, server / "tls.crt", wrong)

    asyncio.run(scenario())


def test_a_renewed_certificate_is_shown_though_the_authorities_file_is_gone(
    issued: list[Path], clients: tuple[Path, Path], mounted: Path
) -> None:
    client, stranger = clients
    authorities = mounted.parent / "ca.crt"
    authorities.write_bytes("# Straße\n".encode("latin-1") + (client / "tls.crt").read_bytes())
    in_place(mounted, issued[0])
    options = MetricsTlsOptions(cert_dir=mounted, client_ca_file=authorities)
    certificate = metrics_certificate(options)
    context = metrics_context(options, certificate)
    authorities.unlink()
    in_place(mounted, issued[1])
    assert certificate.look()
    assert context.verify_mode is ssl.CERT_REQUIRED

    async def ask(port: int, folder: Path) -> bytes:
        trusting = ssl.create_default_context(cafile=str(issued[1] / "tls.crt"))
        trusting.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        reader, writer = await asyncio.open_connection("localhost", port, ssl=trusting)
        try:
            return await reader.read(2)
        except (ssl.SSLError, ConnectionError):
            return b""
        finally:
            writer.close()

    def answer(_: object, writer: asyncio.StreamWriter) -> None:
        writer.write(b"ok")
        writer.close()

    async def scenario() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
            port = server.sockets[0].getsockname()[1]
            assert await ask(port, client) == b"ok"
            assert await ask(port, stranger) == b""

    asyncio.run(scenario())


def test_the_metrics_port_keeps_to_the_lowest_version(issued: list[Path]) -> None:
    async def scenario() -> None:
        options = MetricsTlsOptions(cert_dir=issued[0], tls=TlsOptions(min_version="VersionTLS13"))
        async with running(metrics_tls=options) as app:
            context = ssl.create_default_context(cafile=str(issued[0] / "tls.crt"))
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await asyncio.open_connection("localhost", app.metrics_port, ssl=context)

    asyncio.run(scenario())


@pytest.mark.parametrize("content", [None, "", "hello"])
def test_authorities_that_cannot_be_read_are_one_sentence(
    issued: list[Path], tmp_path: Path, content: str | None
) -> None:
    async def scenario() -> None:
        file = tmp_path / "ca.crt"
        if content is not None:
            file.write_text(content)
        with pytest.raises(ConfigError, match=f"^--metrics-client-ca-file={file}: cannot be used"):
            async with running(metrics_tls=MetricsTlsOptions(cert_dir=issued[0], client_ca_file=file)):
                pass

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["tls.crt", "tls.key"])
@pytest.mark.parametrize("content", [b"garbage", b""], ids=["garbage", "empty"])
def test_a_file_that_is_no_pem_is_named(issued: list[Path], name: str, content: bytes) -> None:
    (issued[0] / name).write_bytes(content)
    with pytest.raises(ConfigError, match=rf"^--cert-path={issued[0]}: {name} is no PEM: it has no line -----BEGIN "):
        Certificate.from_folder(issued[0])


@pytest.mark.parametrize(("name", "what"), [("tls.crt", "certificate"), ("tls.key", "private key")])
def test_a_damaged_file_is_named(issued: list[Path], name: str, what: str) -> None:
    first, *_, last = (issued[0] / name).read_text().splitlines()
    (issued[0] / name).write_text(f"{first}\nAAAA\n{last}\n")
    with pytest.raises(ConfigError, match=rf"the {what} in {name} cannot be read"):
        Certificate.from_folder(issued[0])


def test_a_key_of_another_certificate_is_called_so(issued: list[Path]) -> None:
    (issued[0] / "tls.key").write_bytes((issued[1] / "tls.key").read_bytes())
    with pytest.raises(ConfigError, match=r"the key in tls\.key does not belong to the certificate in tls\.crt"):
        Certificate.from_folder(issued[0])


def test_a_folder_that_does_not_exist_is_named_as_such(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name, why in (("nowhere", "there is no such folder"), ("file", "is no folder")):
        with pytest.raises(ConfigError, match=rf"^--metrics-cert-dir={tmp_path / name}: {why}"):
            Certificate.from_folder(tmp_path / name, "--metrics-cert-dir")
