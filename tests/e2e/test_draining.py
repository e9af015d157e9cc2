"""The process of ``tierwise serve`` after SIGTERM: not ready at once, streams end, then the exit code is 0."""

from __future__ import annotations

import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from epp.extproc.service import PROCESS
from epp.pb.ext_proc_pb2 import ProcessingRequest, ProcessingResponse
from epp.server.settings import Transport
from tests.e2e.site.background import PATIENCE_S
from tests.e2e.site.router import LOOPBACK, accepts
from tests.e2e.test_command import Running
from tests.epp.doubles import completion, destination_of, request_body, request_headers, response_body, response_headers

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]
ENDPOINT = f"{LOOPBACK}:9"


@dataclass
class Stream:
    """One exchange, which sends one message at a time."""

    channel: grpc.Channel
    to_send: queue.SimpleQueue[bytes | None] = field(default_factory=queue.SimpleQueue)
    answers: Any = None

    def __post_init__(self) -> None:
        self.answers = self.channel.stream_stream(PROCESS)(iter(self.to_send.get, None), timeout=PATIENCE_S)

    def send(self, *messages: ProcessingRequest) -> None:
        for message in messages:
            self.to_send.put(message.SerializeToString())

    def answer(self) -> ProcessingResponse:
        return ProcessingResponse.FromString(next(self.answers))

    def end(self) -> None:
        self.to_send.put(None)


@dataclass
class Picker:
    running: Running
    grpc_port: int
    health_port: int
    metrics_port: int

    def health(self, port: int) -> int:
        with grpc.insecure_channel(f"{LOOPBACK}:{port}") as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check")
            answer = check(HealthCheckRequest(service="readiness").SerializeToString(), timeout=PATIENCE_S)
            return int(HealthCheckResponse.FromString(answer).status)

    def ready(self) -> int:
        connection = HTTPConnection(LOOPBACK, self.metrics_port, timeout=PATIENCE_S)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status
        finally:
            connection.close()

    def told_to_stop(self) -> None:
        self.running.process.send_signal(signal.SIGTERM)
        self.running.until(lambda: "stopping" in self.running.said)

    def exit_code(self) -> int:
        status = self.running.process.wait(PATIENCE_S)
        assert "Traceback" not in self.running.said
        return status


@contextmanager
def serving(*flags: str) -> Iterator[tuple[Picker, grpc.Channel]]:
    words = ["serve", f"--host={LOOPBACK}", "--secure-serving=false", *flags]
    if not any(flag.startswith("--endpoint=") for flag in flags):
        words.append(f"--endpoint={ENDPOINT}")
    words += [f"--{port}=0" for port in ("grpc-port", "grpc-health-port", "metrics-port", "debug-port")]
    command = [sys.executable, "-c", "import sys; from epp.commandline.cli import main; sys.exit(main())", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        running = Running(process, 0)
        try:
            running.until(lambda: "serving ext-proc" in running.said or process.poll() is not None)
            ports = re.search(r"on port (\d+), health on (\d+), metrics on (\d+)", running.said)
            assert ports, running.said
            picker = Picker(running, *map(int, ports.groups()))
            with grpc.insecure_channel(f"{LOOPBACK}:{picker.grpc_port}") as channel:
                yield picker, channel
        finally:
            if process.poll() is None:
                process.kill()


def begun(channel: grpc.Channel) -> Stream:
    """Open a stream with a request that has been placed and not answered yet."""
    stream = Stream(channel)
    stream.send(request_headers(), request_body(completion()))
    assert destination_of(stream.answer()) == ENDPOINT
    stream.answer()
    return stream


@pytest.mark.parametrize("transport", list(Transport), ids=lambda transport: transport.value)
def test_a_stream_under_way_ends_after_the_port_has_closed(transport: Transport) -> None:
    with serving("--drain-timeout=15s", f"--transport={transport.value}") as (picker, channel):
        ports = (picker.grpc_port, picker.health_port)
        assert [picker.health(port) for port in ports] == [HealthCheckResponse.SERVING] * 2
        assert picker.ready() == 200
        stream = begun(channel)
        picker.told_to_stop()
        assert [picker.health(port) for port in ports] == [HealthCheckResponse.NOT_SERVING] * 2
        assert picker.ready() == 503
        late = begun(channel)
        late.send(response_headers(end_of_stream=True))
        assert late.answer().WhichOneof("response") == "response_headers", "served on, until proxies have left"
        late.end()
        picker.running.until(lambda: not accepts(picker.grpc_port))
        stream.send(response_headers(), response_body(b"{}"))
        assert stream.answer().WhichOneof("response") == "response_headers"
        assert stream.answer().WhichOneof("response") == "response_body"
        stream.end()
        assert list(stream.answers) == []
        assert picker.exit_code() == 0


def test_a_second_signal_ends_it_at_once() -> None:
    with serving("--drain-timeout=10m") as (picker, channel):
        begun(channel)
        picker.told_to_stop()
        picker.running.process.send_signal(signal.SIGTERM)
        assert picker.exit_code() == 0


@pytest.mark.parametrize("transport", list(Transport), ids=lambda transport: transport.value)
def test_without_time_to_drain_it_ends_at_once_and_streams_are_told(transport: Transport) -> None:
    with serving("--drain-timeout=0", f"--transport={transport.value}") as (picker, channel):
        stream = begun(channel)
        picker.running.process.send_signal(signal.SIGTERM)
        with pytest.raises(grpc.RpcError):
            stream.answer()
        assert picker.exit_code() == 0


def test_the_proxy_of_its_pod_is_told_and_served_until_it_has_left() -> None:
    asked: queue.SimpleQueue[str] = queue.SimpleQueue()

    class Admin(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.put(self.path)
            self.send_response(200)
            self.end_headers()

    with HTTPServer((LOOPBACK, 0), Admin) as admin:
        thread = threading.Thread(target=admin.serve_forever)
        thread.start()
        try:
            with serving("--drain-timeout=10m", f"--proxy-admin-port={admin.server_port}") as (picker, channel):
                stream = begun(channel)
                picker.told_to_stop()
                assert asked.get(timeout=PATIENCE_S) == "/healthcheck/fail"
                begun(channel).end()
                stream.end()
                channel.close()
                assert picker.exit_code() == 0
        finally:
            admin.shutdown()
            thread.join()


def test_a_proxy_of_its_pod_that_does_not_hear_it_is_named() -> None:
    with serving("--drain-timeout=1s", "--proxy-admin-port=1") as (picker, channel):
        begun(channel).end()
        picker.told_to_stop()
        assert picker.exit_code() == 0
        assert "the proxy's admin port 1 does not answer" in picker.running.said
