"""HTTP/1.0, the protocol of ``curl -0``, ``ab``, old probes and an nginx with its default configuration."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from epp.ports.claim import claim
from tests.e2e.site.background import Background
from tests.e2e.site.router import accepts
from tests.epp.standalone.raw import raw, status_of
from tests.epp.standalone.stage import Stage, stage
from tests.epp.standalone.test_start import wait_until

pytestmark = pytest.mark.e2e
LOOPBACK = "127.0.0.1"
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/local/bin:/usr/bin")


@pytest.fixture(scope="module")
def router(loop: Background, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(loop, tmp_path_factory.mktemp("old")) as started:
        yield started


def completion(**more: object) -> bytes:
    return json.dumps({"model": "m", "prompt": "x"} | more).encode()


def posted(body: bytes, *headers: bytes) -> bytes:
    head = [b"POST /v1/completions HTTP/1.0", b"content-length: %d" % len(body), *headers]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def test_a_client_of_1_0_is_answered_without_a_host(router: Stage) -> None:
    answer = raw(router.proxy.settings.port, posted(completion()))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert status_of(answer) == 200
    assert b"transfer-encoding" not in head.lower()
    assert json.loads(body)["choices"][0]["text"] in {engine.address for engine in router.engines}


def test_a_streamed_answer_to_1_0_has_no_chunks_and_ends_with_the_connection(router: Stage) -> None:
    answer = raw(router.proxy.settings.port, posted(completion(stream=True), b"host: x"))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert status_of(answer) == 200
    assert b"transfer-encoding" not in head.lower()
    assert body.startswith(b"data: {")
    assert body.endswith(b"data: [DONE]\n\n")


def test_a_probe_of_1_0_is_answered(router: Stage) -> None:
    assert status_of(raw(router.proxy.settings.port, b"GET /v1/models HTTP/1.0\r\n\r\n")) == 200


def test_a_request_line_without_a_version_is_of_1_0_and_nothing_behind_it_is_read(router: Stage) -> None:
    answer = raw(router.proxy.settings.port, b"GET /v1/models\r\n\r\nGET /v1/smuggled HTTP/1.1\r\nhost: x\r\n\r\n")
    assert status_of(answer) == 200
    assert answer.count(b"HTTP/1.") == 1


@contextmanager
def nginx(folder: Path, upstream: int) -> Iterator[int]:
    """Run an nginx with its default configuration before ``upstream`` and yield its port."""
    port = claim(LOOPBACK, 0, "--port")
    file = folder / "nginx.conf"
    file.write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log stderr;\n"
        "events {}\n"
        f"http {{ access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;\n"
        f"fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;\n"
        f"server {{ listen {LOOPBACK}:{port}; location / {{ proxy_pass http://{LOOPBACK}:{upstream}; }} }} }}\n"
    )
    assert NGINX is not None
    with subprocess.Popen([NGINX, "-p", str(folder), "-c", str(file)]) as process:
        try:
            wait_until(lambda: accepts(port) or process.poll() is not None)
            yield port
        finally:
            process.kill()


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed; apt-get install nginx-light")
@pytest.mark.parametrize("stream", [False, True])
def test_an_nginx_as_it_comes_passes_requests_on(router: Stage, tmp_path: Path, stream: bool) -> None:
    with nginx(tmp_path, router.proxy.settings.port) as port:
        connection = HTTPConnection(LOOPBACK, port, timeout=15)
        connection.request("POST", "/v1/completions", completion(stream=stream))
        response = connection.getresponse()
        text = response.read()
        connection.close()
    assert response.status == 200
    assert text.endswith(b"data: [DONE]\n\n") if stream else b"choices" in text
