"""A missing resource is one sentence; every started process ends with ours."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from epp.errors import ConfigError
from epp.metrics.gauges import ReadingSource
from epp.pool.pool import Endpoint, Pool
from epp.ports.claim import claim
from epp.ports.resolve import resolve
from epp.runtime.signals import Stop, until_signalled
from epp.standalone import tether
from epp.standalone.binary import StartError, find_envoy
from epp.standalone.options import StandaloneOptions
from epp.standalone.proxy import Proxy, restart_delay_s
from epp.standalone.run import standalone
from epp.standalone.settings import ProxySettings
from tests.e2e.site.background import Background, until
from tests.e2e.site.options import options_of
from tests.epp.standalone.fixed_picker import FixedPicker
from tests.epp.standalone.stage import stage

LOOPBACK = "127.0.0.1"


def test_a_port_in_use_is_named_with_the_flag_that_chooses_another() -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"port {port} is in use; stop what listens there or pass --port"):
            claim(LOOPBACK, port, "--port")


def test_a_port_that_another_would_share_is_in_use() -> None:
    with socket.create_server((LOOPBACK, 0), reuse_port=True) as taken, pytest.raises(ConfigError, match="in use"):
        claim(LOOPBACK, taken.getsockname()[1], "--port")


def test_port_zero_is_a_free_port() -> None:
    assert claim(LOOPBACK, 0, "--port") > 0
    assert claim(LOOPBACK, port := claim(LOOPBACK, 0, "--port"), "--port") == port


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(ConfigError, match="pass --port"):
        claim("192.0.2.77", 0, "--port")


@pytest.mark.parametrize("content", [None, "not executable"])
def test_an_envoy_that_cannot_be_run_is_refused(tmp_path: Path, content: str | None) -> None:
    chosen = tmp_path / "envoy"
    if content is not None:
        chosen.write_text(content)
    with pytest.raises(StartError, match="--envoy"):
        find_envoy(chosen)


def test_a_chosen_envoy_is_taken(tmp_path: Path) -> None:
    chosen = tmp_path / "envoy"
    chosen.touch(mode=0o755)
    assert find_envoy(chosen) == chosen


def test_a_restart_waits_longer_each_time_up_to_a_limit() -> None:
    delays = [restart_delay_s(deaths) for deaths in range(1, 40)]
    assert delays == sorted(delays)
    assert (delays[0], delays[-1]) == (0.1, 5.0)


@pytest.mark.parametrize(
    ("endpoint", "resolved"),
    [("10.0.0.7:1", "10.0.0.7:1"), ("[FD00::1]:1", "[fd00::1]:1"), ("localhost:8000", "127.0.0.1:8000")],
)
def test_an_endpoint_becomes_an_address(endpoint: str, resolved: str) -> None:
    assert asyncio.run(resolve([endpoint])) == [resolved]


def test_an_unknown_name_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no-such-host\.invalid:8000"):
        asyncio.run(resolve(["10.0.0.7:8000", "no-such-host.invalid:8000"]))


def test_a_program_that_does_not_start_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    broken = tmp_path / "envoy"
    broken.write_text("#!/bin/sh\necho wrong configuration >&2\nexit 3\n")
    broken.chmod(0o755)
    settings = ProxySettings(port=1, admin_port=2, picker_port=3, endpoints_file=tmp_path / "e.json")
    with pytest.raises(StartError, match=r"Envoy ended at once.*\n.*wrong configuration"):
        asyncio.run(Proxy(broken, settings, tmp_path).start())


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "#!/bin/sh\necho 'envoy  version: 9e55809/1.22.0/Clean/RELEASE/BoringSSL'\n",
            r"is Envoy 1\.22\.0 \(tested with",
        ),
        ("#!/bin/sh\necho hello\n", r"is no Envoy: it does not say an Envoy's version"),
        ("\0\0\0\0", r"(?s)is no program that can be run here.*Exec format error"),
    ],
    ids=["old", "other", "garbage"],
)
def test_a_program_that_is_another_version_or_no_envoy_is_called_so(tmp_path: Path, script: str, said: str) -> None:
    other = tmp_path / "envoy"
    other.write_text(script)
    other.chmod(0o755)
    settings = ProxySettings(port=1, admin_port=2, picker_port=3, endpoints_file=tmp_path / "e.json")
    with pytest.raises(StartError, match=said):
        asyncio.run(Proxy(other, settings, tmp_path).start())


@pytest.mark.e2e
def test_an_envoy_that_cannot_be_started_again_is_tried_until_it_can(
    loop: Background, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with stage(loop, tmp_path) as running:
        first = running.proxy.statistics()
        assert first.pid is not None
        config = tmp_path / "envoy.json"
        config.unlink()
        config.mkdir()  # as good as a full disk
        os.kill(first.pid, signal.SIGKILL)
        loop.until(lambda: "Envoy cannot be started: " in caplog.text)
        config.rmdir()
        loop.until(lambda: "Envoy serves again" in caplog.text)
        assert running.ask().status == 200


def alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def wait_until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel for it")
def test_a_tethered_program_dies_with_us_even_if_we_are_killed() -> None:
    code = (
        "import os, subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, {tether.__file__!r}, str(os.getpid()), '/bin/sleep', '1000'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(1000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        wait_until(lambda: Path(f"/proc/{child}/comm").read_text() == "sleep\n")
        parent.kill()
    wait_until(lambda: not alive(child))


def test_a_tether_whose_holder_is_gone_starts_nothing() -> None:
    ran = subprocess.run(
        [sys.executable, tether.__file__, "1", "/bin/echo", "started"], capture_output=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (1, b"")


@pytest.mark.e2e
def test_an_envoy_that_dies_is_restarted_and_serves_again(loop: Background, tmp_path: Path) -> None:
    with stage(loop, tmp_path) as running:
        first = running.proxy.statistics()
        assert first.pid is not None
        os.kill(first.pid, signal.SIGKILL)
        loop.until(lambda: running.proxy.statistics().restarts == 1 and running.proxy.statistics().pid)

        def serves() -> bool:
            try:
                return running.ask().status == 200
            except OSError:
                return False

        wait_until(serves)
        assert running.proxy.statistics().pid != first.pid


@pytest.mark.e2e
def test_stopping_lets_a_request_end_and_takes_no_more(loop: Background, tmp_path: Path) -> None:
    with stage(loop, tmp_path) as running:
        held = running.engines[0]
        running.picker.destination = held.address
        loop.call(held.gate.clear)
        connection = running.connect()
        connection.request("POST", "/v1/completions", '{"model": "m", "prompt": "x"}')
        loop.until(held.started.is_set)
        stopping = asyncio.run_coroutine_threadsafe(running.proxy.stop(20.0), loop.loop)

        def refused() -> bool:
            with socket.socket() as client:
                return client.connect_ex((LOOPBACK, running.proxy.settings.port)) != 0

        wait_until(refused)
        assert not stopping.done()
        loop.call(held.gate.set)
        assert connection.getresponse().status == 200
        connection.close()
        stopping.result(15)
        assert running.proxy.statistics().pid is None


class Picker(FixedPicker):
    """A picker with the interface that ``run`` needs."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool()
        self.stopped = False
        self.draining = False
        self.was_ready_at_the_end: bool | None = None

    def drain(self) -> None:
        self.draining = True

    def expose(self, source: ReadingSource) -> None:
        self.exposed = {reading.name: list(reading.samples) for reading in source()}

    @property
    def grpc_port(self) -> int:
        return self.port

    @property
    def changes_responses(self) -> bool:
        return False

    async def stop(self, drain_timeout_s: float = 0.0) -> None:
        self.was_ready_at_the_end = not self.draining
        await super().stop()
        self.stopped = True


def starts(picker: Picker) -> Callable[[StandaloneOptions], Awaitable[Picker]]:
    async def start(options: StandaloneOptions) -> Picker:
        picker.pool.replace([Endpoint(address) for address in await resolve(options.picker.endpoints)])
        await picker.start()
        return picker

    return start


@pytest.mark.e2e
def test_one_command_starts_both_and_a_signal_stops_both(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    options = options_of(endpoint=("localhost:9",), host=LOOPBACK, port=0, admin_port=0, drain_timeout=5.0)
    picker = Picker()

    async def scenario() -> None:
        async def signal_us_once_it_serves() -> str:
            await until(lambda: "welcome" in caplog.text)
            (port,) = re.findall(r"welcome at http://127.0.0.1:(\d+)/v1", caplog.text)
            reader, writer = await asyncio.open_connection(LOOPBACK, int(port))
            writer.write(b"GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            answer = (await reader.read()).decode()
            writer.close()
            os.kill(os.getpid(), signal.SIGTERM)
            return answer

        client = asyncio.create_task(signal_us_once_it_serves())
        await until_signalled(lambda stop: standalone(options, starts(picker), stop))
        assert "503" in await client, "the endpoint is not there"

    asyncio.run(scenario())
    assert picker.stopped
    assert picker.was_ready_at_the_end is False
    assert picker.exposed == {"tierwise_envoy_restarts": [((), 0)], "tierwise_endpoints_file_errors": [((), 0)]}


def test_that_nothing_says_what_to_route_to_comes_before_a_port_that_is_taken() -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        command = [sys.executable, "-m", "epp.commandline.cli", "standalone", f"--host={LOOPBACK}"]
        port = f"--port={taken.getsockname()[1]}"
        done = subprocess.run([*command, port], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "nothing says where the endpoints are: pass --endpoint HOST:PORT" in done.stderr


@pytest.mark.e2e
def test_what_cannot_start_leaves_nothing_running() -> None:
    picker = Picker()
    with socket.create_server((LOOPBACK, 0)) as taken:
        options = options_of(host=LOOPBACK, port=taken.getsockname()[1], admin_port=0)
        with pytest.raises(ConfigError, match="--port"):
            asyncio.run(standalone(options, starts(picker), Stop()))
    assert picker.port == 0, "the picker was not even started"
