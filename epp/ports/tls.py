"""Encryption of a port: the operator's certificate, or a self-signed one made at start.

A proxy that connects to a picker in the same pod does not verify it, so a certificate made at start suffices there; it
lives as long as the process.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from epp.errors import ConfigError
from epp.ports.certificates import Certificate, Pair, load
from epp.ports.options import MetricsTlsOptions, TlsOptions

_VERSIONS = {"VersionTLS12": ssl.TLSVersion.TLSv1_2, "VersionTLS13": ssl.TLSVersion.TLSv1_3}

_SUITES = {
    f"TLS_ECDHE_{key}_WITH_{iana}": f"ECDHE-{key}-{openssl}"
    for key in ("ECDSA", "RSA")
    for iana, openssl in (
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
        ("CHACHA20_POLY1305", "CHACHA20-POLY1305"),  # the older spelling
    )
}
"""TLS 1.2 suites that HTTP/2 allows (RFC 9113, appendix A), by IANA name; the value is OpenSSL's."""

_VALID = timedelta(days=3650)


def ext_proc_certificate(options: TlsOptions) -> Certificate:
    """Return the certificate of the ext-proc port. Raises: ConfigError naming the file that cannot be used."""
    if options.cert_path is None:
        return Certificate(self_signed())
    return Certificate.from_folder(options.cert_path)


def metrics_certificate(options: MetricsTlsOptions) -> Certificate:
    """Return the certificate of the metrics port. Raises: ConfigError naming the file that cannot be used."""
    return Certificate.from_folder(options.cert_dir, "--metrics-cert-dir")


def server_context(options: TlsOptions, certificate: Certificate) -> ssl.SSLContext:
    """Return a context for our own HTTP/2 server: ALPN ``h2``, TLS 1.2 or later.

    Raises: ConfigError naming the flag, or the file that cannot be used.
    """
    return _following(certificate, lambda pair: _context(options, pair, "h2"))


def metrics_context(options: MetricsTlsOptions, certificate: Certificate) -> ssl.SSLContext:
    """Return a context for HTTP/1.1, whose clients may have to show a certificate.

    Raises: ConfigError naming the flag, or the file that cannot be used.
    """

    # Read once: that it is gone when a certificate is renewed must not keep the new one out.
    authorities = None if options.client_ca_file is None else _authorities(options.client_ca_file)

    def make(pair: Pair) -> ssl.SSLContext:
        context = _context(options.tls, pair, "http/1.1")
        if authorities is not None:
            context.load_verify_locations(cadata=authorities)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    return _following(certificate, make)


def _following(certificate: Certificate, make: Callable[[Pair], ssl.SSLContext]) -> ssl.SSLContext:
    """Return a context that shows ``certificate`` as it is when a connection starts."""
    current = context = make(certificate.pair)

    def renew(pair: Pair) -> None:
        # A new context rather than another certificate in the old one: that keeps one for each kind of key.
        nonlocal current
        current = make(pair)

    def answer(connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> None:  # noqa: ARG001
        if current is not context:
            connection.context = current

    certificate.listeners.append(renew)
    context.sni_callback = answer  # called for every connection, also of a client that names no server
    return context


def refuse_for_grpcio(options: TlsOptions) -> None:
    """Check the options for grpcio, which serves TLS 1.2 or later with its own choice of suites.

    Raises: ConfigError naming the flag that it cannot honor.
    """
    for flag, asked in (
        ("--tls-min-version=VersionTLS13", options.min_version == "VersionTLS13"),
        ("--tls-cipher-suites", bool(options.cipher_suites)),
    ):
        if asked:
            raise ConfigError(f"{flag} cannot be honored with --transport=grpcio; leave out one of the two")


def self_signed() -> Pair:
    """Return a new pair for localhost, whose key is on no disk."""
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
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def write_self_signed(folder: Path) -> None:
    """Write a new ``tls.crt`` and ``tls.key`` (owner only) for localhost into ``folder``."""
    pair = self_signed()
    private = folder / "tls.key"
    private.touch(mode=0o600)
    private.write_bytes(pair.private_key)
    (folder / "tls.crt").write_bytes(pair.chain)


def _context(options: TlsOptions, pair: Pair, protocol: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[options.min_version]
    if options.cipher_suites:
        context.set_ciphers(":".join(_openssl(name) for name in options.cipher_suites))
    context.set_alpn_protocols([protocol])
    load(context, pair)
    return context


def _authorities(file: Path) -> str:
    """Return the authorities' certificates in ``file``. Raises: ConfigError if there are none."""
    try:
        text = file.read_bytes().decode("ascii", "ignore")  # comments may have any bytes, certificates have not
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=text)
    except (OSError, ValueError, ssl.SSLError) as error:
        raise ConfigError(f"--metrics-client-ca-file={file}: cannot be used: {error}") from error
    return text


def _openssl(name: str) -> str:
    if name not in _SUITES:
        raise ConfigError(f"--tls-cipher-suites: {name!r} cannot be offered; known: {', '.join(_SUITES)}")
    return _SUITES[name]
