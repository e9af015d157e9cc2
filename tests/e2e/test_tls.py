"""The manifest's Envoy and ``tierwise serve`` as a user starts them, encrypted."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import openai
import pytest

from epp.ports.claim import claim
from epp.ports.tls import write_self_signed
from epp.standalone.binary import find_envoy
from tests.e2e.site.background import Background
from tests.e2e.site.engine import Engine
from tests.e2e.site.router import LOOPBACK, accepts, refuse_three_and_answer_one
from tests.e2e.test_command import Running
from tests.e2e.test_draining import serving

pytestmark = pytest.mark.e2e
MANIFEST = Path(__file__).parents[2] / "manifests" / "envoy" / "full-duplex.yaml"


@contextmanager
def manifest_envoy(folder: Path, picker_port: int) -> Iterator[int]:
    """Run Envoy with the manifest on other ports, and yield the port for clients."""
    port, admin_port = claim(LOOPBACK, 0, "--port"), claim(LOOPBACK, 0, "--admin-port")
    text = MANIFEST.read_text()
    for theirs, ours in ((8081, port), (19000, admin_port), (9002, picker_port)):
        assert text.count(f"port_value: {theirs}}}") == 1
        text = text.replace(f"port_value: {theirs}}}", f"port_value: {ours}}}")
    file = folder / "envoy.yaml"
    file.write_text(text)
    words = [str(find_envoy(None)), "-c", str(file), "--disable-hot-restart", "--concurrency", "1", "-l", "warning"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        running = Running(process, port)
        try:
            running.until(lambda: accepts(port) or process.poll() is not None)
            assert process.poll() is None, running.said
            yield port
        finally:
            process.kill()


def picker_is_known(port: int) -> bool:
    """Return whether a request that any endpoint can serve is answered with 200, and not with Envoy's 503."""
    connection = HTTPConnection(LOOPBACK, port, timeout=15)
    try:
        connection.request("GET", "/v1/models")
        return connection.getresponse().status == 200
    finally:
        connection.close()


@pytest.mark.parametrize("flags", [["--tls-min-version=VersionTLS13"], []], ids=["floor-1.3", "default"])
def test_the_manifest_reaches_an_encrypted_picker(
    loop: Background, engines: list[Engine], tmp_path: Path, flags: list[str]
) -> None:
    write_self_signed(tmp_path)
    given = ["--secure-serving=true", f"--cert-path={tmp_path}", f"--endpoint={engines[0].address}", *flags]
    with serving(*given) as (picker, _), manifest_envoy(tmp_path, picker.grpc_port) as port:
        picker.running.until(lambda: picker_is_known(port))
        with openai.OpenAI(base_url=f"http://{LOOPBACK}:{port}/v1", api_key="none", max_retries=0) as client:
            assert client.completions.create(model="m", prompt="x").choices[0].text == engines[0].address
        refuse_three_and_answer_one(port)
        assert "WARNING epp.ports.failures" not in picker.running.said


def test_the_manifests_own_answers_are_json_that_a_client_shows(loop: Background, tmp_path: Path) -> None:
    gone = f"{LOOPBACK}:{claim(LOOPBACK, 0, '--port')}"
    write_self_signed(tmp_path)
    given = ["--secure-serving=true", f"--cert-path={tmp_path}", f"--endpoint={gone}", "--error-format=api"]
    with (
        serving(*given) as (picker, _),
        manifest_envoy(tmp_path, picker.grpc_port) as port,
        openai.OpenAI(base_url=f"http://{LOOPBACK}:{port}/v1", api_key="none", max_retries=0) as client,
    ):

        def refusal() -> str:
            with pytest.raises(openai.InternalServerError) as refused:
                client.completions.create(model="m", prompt="x")
            return str(refused.value)

        picker.running.until(lambda: "upstream connect error" in refusal())
        with pytest.raises(openai.BadRequestError, match="`messages` must hold at least one message"):
            client.chat.completions.create(model="m", messages=[])


def test_an_envoy_that_speaks_tls_to_a_plaintext_picker_is_in_the_log(loop: Background, tmp_path: Path) -> None:
    with serving() as (picker, _), manifest_envoy(tmp_path, picker.grpc_port):
        picker.running.until(lambda: "speaks TLS to port" in picker.running.said)
        assert f"127.0.0.1 speaks TLS to port {picker.grpc_port}, which is plaintext" in picker.running.said
