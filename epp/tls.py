"""Encryption of the ext-proc port: the operator's certificate, or a self-signed one made at start.

A proxy that talks to a picker in the same pod does not verify it, so a certificate made at start will do there; it
lives as long as the process.
"""

from __future__ import annotations

import ipaddress
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from epp.errors import ConfigError
from epp.options import TlsOptions

if TYPE_CHECKING:
    from epp.wire.aio import Certificate

_VERSIONS = {"VersionTLS12": ssl.TLSVersion.TLSv1_2, "VersionTLS13": ssl.TLSVersion.TLSv1_3}

_SUITES = {
    f"TLS_ECDHE_{key}_WITH_{iana}": f"ECDHE-{key}-{openssl}"
    for key in ("ECDSA", "RSA")
    for iana, openssl in (
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
    )
}
"""TLS 1.2 suites that HTTP/2 allows (RFC 9113, appendix A), by IANA name; the value is OpenSSL's."""

_VALID = timedelta(days=3650)


def server_context(options: TlsOptions) -> ssl.SSLContext:
    """A context for our own HTTP/2 server: ALPN ``h2``, TLS 1.2 or later.

    Raises: ConfigError naming the flag, or the file that cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[options.min_version]
    context.set_alpn_protocols(["h2"])
    if options.cipher_suites:
        context.set_ciphers(":".join(_openssl(name) for name in options.cipher_suites))
    if options.cert_path is None:
        with tempfile.TemporaryDirectory() as folder:  # the library reads certificates from files only
            write_self_signed(Path(folder))
            _load(context, Path(folder))
    else:
        _load(context, options.cert_path)
    return context


def certificate(options: TlsOptions) -> Certificate:
    """The same for ``grpc.aio``, which takes the PEM texts and speaks TLS 1.2 or later with its own choice of suites.

    Raises: ConfigError naming the flag that grpcio cannot honour, or the file that cannot be used.
    """
    from epp.wire.aio import Certificate

    for flag, asked in (
        ("--tls-min-version=VersionTLS13", options.min_version == "VersionTLS13"),
        ("--tls-cipher-suites", bool(options.cipher_suites)),
    ):
        if asked:
            raise ConfigError(f"{flag} cannot be honoured with --transport=grpcio; leave out one of the two")
    server_context(options)  # refuses what cannot be used: grpcio would say so at the first handshake only
    with tempfile.TemporaryDirectory() as name:
        folder = options.cert_path or Path(name)
        if options.cert_path is None:
            write_self_signed(folder)
        return Certificate((folder / "tls.crt").read_bytes(), (folder / "tls.key").read_bytes())


def write_self_signed(folder: Path) -> None:
    """Write a new ``tls.crt`` and ``tls.key`` (owner only) for localhost into ``folder``."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tierwise")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks differ
        .not_valid_after(now + _VALID)
        .add_extension(
            x509.SubjectAlternativeName(
                [
                    x509.DNSName("localhost"),
                    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
                    x509.IPAddress(ipaddress.ip_address("::1")),
                ]
            ),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = folder / "tls.key"
    private.touch(mode=0o600)
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    (folder / "tls.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _load(context: ssl.SSLContext, folder: Path) -> None:
    for file in (folder / "tls.crt", folder / "tls.key"):
        if not file.is_file():
            raise ConfigError(f"--cert-path={folder}: there is no file {file.name} in it")
    try:
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"--cert-path={folder}: tls.crt and tls.key cannot be used: {error}") from error


def _openssl(name: str) -> str:
    if name not in _SUITES:
        raise ConfigError(f"--tls-cipher-suites: {name!r} cannot be offered; known: {', '.join(_SUITES)}")
    return _SUITES[name]
