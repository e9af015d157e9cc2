from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from epp.errors import ConfigError
from epp.ports.options import TlsOptions
from epp.ports.tls import ext_proc_certificate, refuse_for_grpcio, write_self_signed
from epp.ports.tls import server_context as context_of


def server_context(options: TlsOptions) -> ssl.SSLContext:
    return context_of(options, ext_proc_certificate(options))


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """Run both sides in memory until they agree, and return the client's side."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    other = server.wrap_bio(to_server, to_client, server_side=True)
    pending = [one, other]
    for _ in range(10):
        for side in list(pending):
            try:
                side.do_handshake()
                pending.remove(side)
            except ssl.SSLWantReadError:
                continue
    assert not pending
    return one


def client_trusting(folder: Path, alpn: str = "h2") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "tls.crt"))
    context.set_alpn_protocols([alpn])
    return context


def unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


def test_a_server_without_certificate_makes_its_own() -> None:
    done = handshake(server_context(TlsOptions()), unverified())
    assert done.selected_alpn_protocol() == "h2"


def test_a_given_certificate_is_served_and_verifies_for_localhost(tmp_path: Path) -> None:
    write_self_signed(tmp_path)
    done = handshake(server_context(TlsOptions(cert_path=tmp_path)), client_trusting(tmp_path))
    assert done.getpeercert()["subject"] == ((("commonName", "tierwise"),),)


def test_the_key_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    write_self_signed(tmp_path)
    assert (tmp_path / "tls.key").stat().st_mode & 0o077 == 0


def test_a_client_below_the_lowest_version_is_refused() -> None:
    client = unverified()
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match="unsupported protocol"):
        handshake(server_context(TlsOptions(min_version="VersionTLS13")), client)


def test_a_chosen_suite_is_the_one_used() -> None:
    client = unverified()
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    options = TlsOptions(cipher_suites=("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",))
    cipher = handshake(server_context(options), client).cipher()
    assert cipher is not None
    assert cipher[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"


def test_an_unknown_suite_is_named() -> None:
    with pytest.raises(ConfigError, match="'TLS_RSA_WITH_RC4_128_SHA' cannot be offered"):
        server_context(TlsOptions(cipher_suites=("TLS_RSA_WITH_RC4_128_SHA",)))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no file tls\.crt in it"):
        server_context(TlsOptions(cert_path=tmp_path))


def test_a_file_that_is_no_certificate_is_refused(tmp_path: Path) -> None:
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).write_text("hello")
    with pytest.raises(ConfigError, match=r"tls\.crt is no PEM"):
        server_context(TlsOptions(cert_path=tmp_path))


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        (TlsOptions(min_version="VersionTLS13"), "--tls-min-version=VersionTLS13"),
        (TlsOptions(cipher_suites=("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",)), "--tls-cipher-suites"),
    ],
)
def test_what_grpcio_cannot_honor_is_refused_by_name(options: TlsOptions, flag: str) -> None:
    with pytest.raises(ConfigError, match=f"^{flag} cannot be honored with --transport=grpcio"):
        refuse_for_grpcio(options)
