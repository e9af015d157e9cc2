"""Most endpoints are listed before they answer: a rollout, behind the manifest's Envoy in full duplex."""

from __future__ import annotations

import json
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from epp.ports.claim import claim
from epp.ports.tls import write_self_signed
from tests.e2e.site.background import Background
from tests.e2e.site.engine import Engine
from tests.e2e.site.router import LOOPBACK
from tests.e2e.test_draining import Picker, serving
from tests.e2e.test_tls import manifest_envoy, picker_is_known

pytestmark = pytest.mark.e2e
REQUESTS = 40
NOBODY = "no endpoint answers: requests get 503 until one does"


def ask(port: int) -> tuple[int, str]:
    """Return the status of a request, and the engine that answered it."""
    with closing(HTTPConnection(LOOPBACK, port, timeout=15)) as connection:
        connection.request("POST", "/v1/completions", json.dumps({"model": "m", "prompt": "x"}))
        response = connection.getresponse()
        body = response.read()
        return response.status, json.loads(body)["choices"][0]["text"] if response.status == 200 else ""


def is_read(picker: Picker, address: str) -> bool:
    with closing(HTTPConnection(LOOPBACK, picker.metrics_port, timeout=15)) as connection:
        connection.request("GET", "/metrics")
        return f'tierwise_endpoint_fresh{{endpoint="{address}"}} 1' in connection.getresponse().read().decode()


def test_the_one_of_three_that_is_up_answers_everything_and_the_next_one_joins_it(
    loop: Background, engines: list[Engine], tmp_path: Path
) -> None:
    write_self_signed(tmp_path)
    up, later = engines[0], Engine()
    ports = [claim(LOOPBACK, 0, "--endpoint") for _ in range(2)]
    listed = ",".join([up.address, *(f"{LOOPBACK}:{port}" for port in ports)])
    given = ["--secure-serving=true", f"--cert-path={tmp_path}", f"--endpoint={listed}"]
    with serving(*given) as (picker, _), manifest_envoy(tmp_path, picker.grpc_port) as port:
        picker.running.until(lambda: is_read(picker, up.address) and picker_is_known(port))
        assert [ask(port) for _ in range(REQUESTS)] == [(200, up.address)] * REQUESTS
        loop.run(later.start(ports[0]))
        try:
            picker.running.until(lambda: is_read(picker, later.address))
            answers = [ask(port) for _ in range(REQUESTS)]  # one reading is enough
        finally:
            loop.run(later.stop())
        assert {status for status, _ in answers} == {200}
        assert {address for _, address in answers} == {up.address, later.address}
        assert NOBODY not in picker.running.said


def test_that_nobody_is_left_is_in_the_log_once_and_so_is_the_end(loop: Background, tmp_path: Path) -> None:
    write_self_signed(tmp_path)
    both = [Engine(), Engine()]
    for engine in both:
        loop.run(engine.start())
    listed = ",".join(engine.address for engine in both)
    given = ["--secure-serving=true", f"--cert-path={tmp_path}", f"--endpoint={listed}"]
    with serving(*given) as (picker, _), manifest_envoy(tmp_path, picker.grpc_port) as port:
        picker.running.until(lambda: all(is_read(picker, engine.address) for engine in both))
        picker.running.until(lambda: picker_is_known(port))
        for engine in both:
            loop.run(engine.stop())
        picker.running.until(lambda: NOBODY in picker.running.said)
        assert ask(port)[0] == 503
        loop.run(both[1].start(int(both[1].address.rpartition(":")[2])))
        picker.running.until(lambda: "no endpoint did" in picker.running.said)
        assert ask(port) == (200, both[1].address)
        loop.run(both[1].stop())
        assert picker.running.said.count("so others are preferred") == 1
        assert picker.running.said.count("no endpoint did") == 1
