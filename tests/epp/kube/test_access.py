"""A pod's credentials: files that the kubelet replaces while the pod runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from epp.errors import ConfigError
from epp.kube.access import HOST, PORT, InCluster, shown
from epp.ports.tls import self_signed

POD = {HOST: "10.96.0.1", PORT: "443"}


def mounted(folder: Path, token: str = "t1") -> Path:
    (folder / "token").write_text(token + "\n")
    (folder / "ca.crt").write_bytes(self_signed()[0])
    (folder / "namespace").write_text("llm")
    return folder


def test_a_pod_finds_its_server_its_namespace_and_its_token(tmp_path: Path) -> None:
    access = InCluster(POD, mounted(tmp_path))
    assert (access.server, access.namespace) == ("https://10.96.0.1:443", "llm")
    assert asyncio.run(access.headers(renew=False)) == {"Authorization": "Bearer t1"}
    assert InCluster({**POD, HOST: "fd00::1"}, tmp_path).server == "https://[fd00::1]:443"


def test_a_token_that_was_replaced_is_used_from_then_on(tmp_path: Path) -> None:
    access = InCluster(POD, mounted(tmp_path))
    (tmp_path / "token").write_text("t2")
    assert asyncio.run(access.headers(renew=False)) == {"Authorization": "Bearer t2"}


def test_a_certificate_authority_that_was_replaced_makes_a_new_context(tmp_path: Path) -> None:
    access = InCluster(POD, mounted(tmp_path))
    first = access.tls()
    assert access.tls() is first
    (tmp_path / "ca.crt").write_bytes(self_signed()[0])
    assert access.tls() is not first


@pytest.mark.parametrize("token", ["a\r\nX-Forged: 1", "a b", "tökén"])
def test_a_token_that_no_header_can_have_is_refused_and_not_shown(tmp_path: Path, token: str) -> None:
    access = InCluster(POD, mounted(tmp_path, token))
    with pytest.raises(ConfigError, match="token has characters") as refused:
        asyncio.run(access.headers(renew=False))
    assert token not in str(refused.value)


def test_an_empty_port_is_https(tmp_path: Path) -> None:
    assert InCluster({HOST: "10.96.0.1", PORT: ""}, mounted(tmp_path)).server == "https://10.96.0.1:443"


def test_outside_a_pod_the_flag_to_give_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"KUBERNETES_SERVICE_HOST is not set.*--endpoint"):
        InCluster({}, tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [("token", None), ("token", b""), ("ca.crt", b"\xff\xfe"), ("ca.crt", b"no"), ("ca.crt", "nö".encode())],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes | None) -> None:
    file = mounted(tmp_path) / name
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=name):
        InCluster(POD, tmp_path).tls()


@pytest.mark.parametrize(
    ("url", "without"),
    [
        ("https://10.0.0.1:6443", "https://10.0.0.1:6443"),
        ("http://alice:s3cret@proxy:3128", "http://proxy:3128"),
        ("https://alice:s3/cr@et@proxy", "https://proxy"),
        ("alice:s3cret@proxy:3128", "proxy:3128"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, without: str) -> None:
    assert shown(url) == without
