"""The process of ``tierwise standalone``: one command starts it, one signal ends it, a refusal is one sentence."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import openai
import pytest

from epp.ports.claim import claim
from tests.e2e.site.background import PATIENCE_S, Background
from tests.e2e.site.engine import Engine
from tests.e2e.site.router import LOOPBACK, accepts

pytestmark = pytest.mark.e2e
COMMAND = [sys.executable, "-c", "import sys; from epp.commandline.cli import main; sys.exit(main())", "standalone"]
ROOT = Path(__file__).parents[2]


class Running:
    """The process, and its output so far."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port
        self.said = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, self.said
            time.sleep(0.01)

    def end(self, number: signal.Signals) -> int:
        """Send the signal and return the exit status."""
        self.process.send_signal(number)
        status = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return status


@contextmanager
def command(*flags: str) -> Iterator[Running]:
    port = claim(LOOPBACK, 0, "--port")
    given = [f"--port={port}", f"--host={LOOPBACK}", "--admin-port=0", "--metrics-port=0", "--shutdown-delay=0", *flags]
    with subprocess.Popen([*COMMAND, *given], stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        running = Running(process, port)
        try:
            running.until(lambda: "welcome" in running.said or process.poll() is not None)
            yield running
        finally:
            if process.poll() is None:
                process.kill()


def test_one_command_serves_until_a_signal(loop: Background, engines: list[Engine]) -> None:
    with command(*(f"--endpoint=localhost:{engine.address.rpartition(':')[2]}" for engine in engines)) as router:
        with openai.OpenAI(base_url=f"http://{LOOPBACK}:{router.port}/v1", api_key="none", max_retries=0) as client:
            answer = client.completions.create(model="m", prompt="x").choices[0].text
        assert answer in {engine.address for engine in engines}
        assert router.end(signal.SIGINT) == 0
        assert not accepts(router.port)
        assert "Traceback" not in router.said


def test_a_load_balancer_has_time_to_hear_of_a_sigterm(loop: Background, engines: list[Engine]) -> None:
    """It is not ready at once, serves new connections and closes kept ones after an answer; a second signal ends it."""
    metrics_port = claim(LOOPBACK, 0, "--metrics-port")
    flags = (f"--endpoint={engines[0].address}", f"--metrics-port={metrics_port}", "--shutdown-delay=10m")
    with command(*flags, "--drain-timeout=20m") as router:
        assert asked(metrics_port, "/readyz")[0] == 200
        assert asked(router.port, "/v1/models") == (200, None)
        router.process.send_signal(signal.SIGTERM)
        router.until(lambda: "connections are accepted for 600 s more" in router.said)
        router.until(lambda: asked(metrics_port, "/readyz")[0] == 503)
        router.until(lambda: asked(router.port, "/v1/models") == (200, "close"))
        assert router.process.poll() is None
        assert router.end(signal.SIGTERM) == 0
        assert not accepts(router.port)
        assert "Traceback" not in router.said
        assert "restarting Envoy" not in router.said


def test_the_grace_ends_and_then_the_port_is_closed(engines: list[Engine]) -> None:
    with command(f"--endpoint={engines[0].address}", "--shutdown-delay=100ms") as router:
        assert router.end(signal.SIGTERM) == 0
        assert "connections are accepted for 0.1 s more" in router.said


def test_an_interrupt_from_the_terminal_waits_for_nobody(engines: list[Engine]) -> None:
    with command(f"--endpoint={engines[0].address}", "--shutdown-delay=10m", "--drain-timeout=20m") as router:
        assert router.end(signal.SIGINT) == 0
        assert "connections are accepted" not in router.said


def asked(port: int, path: str) -> tuple[int, str | None]:
    """Return status and ``Connection`` of the answer, over a connection of its own."""
    with closing(HTTPConnection(LOOPBACK, port, timeout=PATIENCE_S)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        return response.status, response.headers["connection"]


def test_the_endpoints_file_is_followed(loop: Background, engines: list[Engine], tmp_path: Path) -> None:
    file = tmp_path / "endpoints.yaml"

    def write(listed: Sequence[Engine]) -> None:
        lines = ["endpoints:"] if listed else ["endpoints: []"]
        for number, engine in enumerate(listed):
            address, _, port = engine.address.rpartition(":")
            lines += [f"- name: engine-{number}", f"  address: {address}", f"  port: '{port}'"]
        unfinished = tmp_path / "new"
        unfinished.write_text("\n".join(lines))
        unfinished.rename(file)

    write(engines[:1])
    with (
        command(f"--endpoints-file={file}") as router,
        openai.OpenAI(base_url=f"http://{LOOPBACK}:{router.port}/v1", api_key="none", max_retries=0) as client,
    ):

        def answered() -> str | None:
            try:
                return client.completions.create(model="m", prompt="x").choices[0].text
            except openai.InternalServerError:
                return None

        assert answered() == engines[0].address
        write(engines[1:])
        router.until(lambda: answered() == engines[1].address)
        write([])
        router.until(lambda: answered() is None)
        write(engines)
        router.until(lambda: answered() is not None)
        assert router.end(signal.SIGTERM) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel for it")
def test_envoy_does_not_outlive_a_killed_picker(engines: list[Engine]) -> None:
    with command(f"--endpoint={engines[0].address}") as router:
        assert accepts(router.port)
        router.process.kill()
        router.until(lambda: not accepts(router.port))


def test_a_port_in_use_is_one_sentence() -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        with command(f"--endpoint={LOOPBACK}:9", f"--port={port}") as router:
            assert router.process.wait(PATIENCE_S) == 2
            router.until(lambda: router.said.endswith("\n"))
            assert re.fullmatch(rf"tierwise standalone: .*port {port} is in use; .* --port .*\n", router.said)


@pytest.mark.parametrize("flag", ["--port", "--admin-port", "--metrics-port", "--grpc-port"])
def test_a_port_in_use_is_found_before_the_proxys_messages_are_imported(flag: str) -> None:
    code = (
        "import sys; from epp.commandline.cli import main; status = main();"
        "print(status, 'envoy_data_plane' in sys.modules, 'epp.server.app' in sys.modules)"
    )
    with socket.create_server((LOOPBACK, 0)) as taken:
        free = [f"--{name}=0" for name in ("port", "admin-port", "metrics-port")]
        flags = [f"--endpoint={LOOPBACK}:9", f"--host={LOOPBACK}", *free, f"{flag}={taken.getsockname()[1]}"]
        done = subprocess.run(
            [sys.executable, "-c", code, "standalone", *flags], capture_output=True, text=True, cwd=ROOT, check=False
        )
    assert done.stdout == "2 False True\n"
    assert f"is in use; stop what listens there or pass {flag}" in done.stderr


def test_an_envoy_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with command(f"--endpoint={LOOPBACK}:9", f"--envoy={tmp_path / 'envoy'}") as router:
        assert router.process.wait(PATIENCE_S) == 2
        router.until(lambda: router.said.endswith("\n"))
        assert router.said.count("\n") == 1
        assert "--envoy" in router.said


def test_a_name_that_nobody_knows_is_one_sentence() -> None:
    with command("--endpoint=no-such-host.invalid:8000") as router:
        assert router.process.wait(PATIENCE_S) == 2
        router.until(lambda: router.said.endswith("\n"))
        assert "no-such-host.invalid:8000" in router.said


def test_the_envoy_of_a_running_router_can_be_killed(engines: list[Engine]) -> None:
    with command(f"--endpoint={engines[0].address}") as router:
        children = Path(f"/proc/{router.process.pid}/task/{router.process.pid}/children").read_text().split()
        (envoy,) = [int(child) for child in children if "envoy" in Path(f"/proc/{child}/comm").read_text()]
        os.kill(envoy, signal.SIGKILL)
        router.until(lambda: "Envoy serves again" in router.said)
        assert accepts(router.port)
        assert router.end(signal.SIGTERM) == 0
